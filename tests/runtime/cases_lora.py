"""Cases with LoRA and QLoRA: adapters train as in one process.

Mostly with SGD: AdamW's first step depends on the sign of a gradient only, which rounding decides for gradients near zero.
"""

from collections.abc import Iterator
from dataclasses import replace

from strategist.contract.knobs import Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan

from .cases_experts import MODELS as MIXTURES
from .cases_models import MODELS as DENSE
from .plans import TINY, WORKLOAD, plan, two_micro_batches

DEEP = replace(TINY, layers=4, hidden_size=128, heads=4, kv_heads=2, head_size=32, ffn_size=256, qkv_bias=True, qk_norm=True)
"""Wide enough for 4-bit blocks of 64 weights on two ranks."""

SHAPES = {
    "lora": replace(DEEP, name="lora"),
    "qlora": replace(DEEP, name="qlora"),
    "latent": replace(DENSE["latent"], name="lora latent"),
    "experts": replace(MIXTURES["experts sigmoid"], name="lora experts"),
}

BOTH: dict[str, KnobValue] = {"sequence_parallel": True, "loss_parallel": True}
SPLIT: dict[str, KnobValue] = {
    "pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False,
    "micro_batch": 1, "no_sync": True,
}  # fmt: skip


def _case(
    name: str,
    layout: Layout,
    train: str = "lora",
    precision: str = "fp32",
    optimizer: str = "sgd",
    model: str = "",
    **knobs: KnobValue,
) -> tuple[str, Plan]:
    workload = replace(WORKLOAD, precision=precision, optimizer=optimizer, train=train, lora_rank=4)
    chosen = Knobs(**{"micro_batch": two_micro_batches(layout), **knobs})
    return name, plan(layout=layout, knobs=chosen, model=SHAPES[model or train], workload=workload)


def cases() -> Iterator[tuple[str, Plan]]:
    """References on one rank, the other cases on two and four."""
    for train, optimizer in (("lora", "adamw"), ("lora", "sgd"), ("qlora", "sgd")):
        yield _case(f"reference {train} {optimizer}", Layout(), train, optimizer=optimizer, micro_batch=8)
    for model in ("latent", "experts"):
        yield _case(f"reference lora {model} sgd", Layout(), model=model, micro_batch=8)
    yield _case("lora ddp", Layout(dp_replicate=2), optimizer="adamw", recompute="full")
    yield _case("lora fsdp accumulation", Layout(dp_shard=2), micro_batch=1, no_sync=True)
    host_updates: dict[str, KnobValue] = {"offload": "optimizer", "optimizer_in_backward": True}
    yield _case("lora host updates fsdp", Layout(dp_shard=2), optimizer="adamw", micro_batch=1, **host_updates)
    yield _case("lora tp sequence", Layout(tp=2), **BOTH)
    yield _case("lora fsdp tp selective", Layout(dp_shard=2, tp=2), recompute="selective")
    yield _case("lora pp", Layout(pp=2))
    yield _case("lora pp fsdp zero bubble", Layout(pp=2, dp_shard=2), **SPLIT)
    yield _case("lora streamed", Layout(pp=2), offload="streamed", recompute="full", pp_schedule="gpipe")
    yield _case("lora compile fsdp tp", Layout(dp_shard=2, tp=2), **BOTH, compile=True)
    yield _case("lora cp", Layout(cp=2), offload="all")
    yield _case("lora latent tp sequence", Layout(tp=2), model="latent", **BOTH)
    yield _case("lora experts ep 2", Layout(dp_shard=2, ep=2), model="experts", recompute="full")
    yield _case("lora bf16 fsdp", Layout(dp_shard=2), precision="bf16")
    yield _case("lora bf16 pp", Layout(pp=2), precision="bf16")
    yield _case("qlora fsdp", Layout(dp_shard=2), "qlora")
    yield _case("qlora fsdp tp sequence", Layout(dp_shard=2, tp=2), "qlora", **BOTH, recompute="full")
    yield _case("qlora compile fsdp", Layout(dp_shard=2), "qlora", compile=True)
    yield _case("qlora bf16 ddp", Layout(dp_replicate=2), "qlora", precision="bf16")
