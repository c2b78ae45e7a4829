"""Cases with dense models of every architecture: norms, biases, positions, latent attention, sinks and sliding windows."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from strategist.contract.model import MLAShape, RopeScaling
from strategist.contract.plan import Plan

from .plans import TINY

BIASES = {"qkv_bias": True, "output_bias": True, "ffn_bias": True}
LATENT = MLAShape(query_rank=12, key_value_rank=10, rope_head_size=4, nope_head_size=8, value_head_size=6)
STRETCHED = RopeScaling(kind="yarn", factor=4.0, original_positions=8, magnitude=1.0, magnitude_all=0.7)

MODELS = {
    "gpt": replace(TINY, name="gpt", norm="layer", ffn_matrices=2, learned_positions=17, tied_embeddings=True, **BIASES),
    "latent": replace(TINY, name="latent", mla=LATENT, head_size=12, rope_scaling=STRETCHED, norm_epsilon=1e-6),
    "latent plain": replace(TINY, name="latent plain", mla=replace(LATENT, query_rank=0), head_size=12),
    "sinks": replace(
        TINY, name="sinks", attention_sinks=True, kv_heads=2, sliding_window=5, full_attention_every=2, activation="gelu", **BIASES
    ),
}


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """All on two ranks: FSDP2, tensor parallelism, and a pipeline in which only the first stage has positions."""
    both = {"tp": 2, "sequence_parallel": True, "loss_parallel": True}
    yield case("models fsdp gpt", dp_shard=2, model="gpt", recompute="selective")
    yield case("models tp gpt", tp=2, model="gpt")
    yield case("models tp both gpt", **both, model="gpt", recompute="full")
    yield case("models pp gpt", pp=2, model="gpt")
    yield case("models fsdp latent", dp_shard=2, model="latent", recompute="full")
    yield case("models tp latent", tp=2, model="latent")
    yield case("models tp latent plain", **both, model="latent plain")
    yield case("models fsdp sinks", dp_shard=2, model="sinks", recompute="selective")
    yield case("models tp sinks", **both, model="sinks")
    yield case("models bf16 tp sinks", tp=2, model="sinks", precision="bf16")
    yield case("models compile tp both latent", **both, model="latent", compile=True, fullgraph=True)
    yield case("models compile fsdp sinks", dp_shard=2, model="sinks", compile=True, fullgraph=True)
