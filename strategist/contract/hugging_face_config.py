"""Export of a ModelShape as ``config.json`` of transformers."""

from collections.abc import Iterator
from typing import Any

from strategist.contract.model import ModelShape, RopeScaling
from strategist.errors import InputError

CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel", "mixtral": "MixtralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}  # fmt: skip

_BIASES = frozenset({"qkv_bias", "output_bias"})
TRAITS: dict[frozenset[str], str] = {
    frozenset(): "llama",
    _BIASES: "llama",
    frozenset({"ffn_bias"}): "llama",
    _BIASES | {"ffn_bias"}: "llama",
    frozenset({"sliding_window"}): "mistral",
    frozenset({"qkv_bias"}): "qwen2",
    frozenset({"qk_norm"}): "qwen3",
    _BIASES | {"qk_norm"}: "qwen3",
    _BIASES | {"ffn_bias", "layer norm", "two matrices", "learned_positions"}: "gpt2",
    frozenset({"softmax experts"}): "mixtral",
    frozenset({"softmax experts", "qk_norm"}): "qwen3_moe",
    _BIASES | {"softmax experts", "qk_norm"}: "qwen3_moe",
    frozenset({"sigmoid experts", "mla"}): "deepseek_v3",
}
"""Model type by the traits in which a shape differs from the simplest decoder."""

GPT2_ACTIVATIONS = {"gelu_tanh": "gelu_new"}


def model_type_of(shape: ModelShape) -> str:
    """Model type of transformers that computes the same function as a decoder of this shape.

    Raises:
        InputError: there is none.
    """
    traits = frozenset(_traits(shape))
    if traits not in TRAITS:
        names = ", ".join(sorted(traits))
        model = f"model {shape.name} with {names}"
        raise InputError(model, "is none of Hugging Face's architectures", "leave out --export-weights")
    return TRAITS[traits]


def config_of(shape: ModelShape, positions: int, dtype: str) -> dict[str, Any]:
    """The ``config.json`` for sequences of up to ``positions`` tokens.

    Raises:
        InputError: no model type computes this.
    """
    kind = model_type_of(shape)
    common = {"model_type": kind, "architectures": [CLASSES[kind]], "dtype": dtype, "tie_word_embeddings": shape.tied_embeddings}
    return common | {"vocab_size": shape.vocab_size} | (_gpt2(shape) if kind == "gpt2" else _decoder(shape, positions))


def _traits(shape: ModelShape) -> Iterator[str]:
    yield from (name for name in ("qkv_bias", "output_bias", "ffn_bias", "qk_norm", "attention_sinks") if getattr(shape, name))
    yield from (name for name in ("learned_positions", "sliding_window", "full_attention_every") if getattr(shape, name))
    yield from (name for name in ("qk_norm_all_heads", "embedding_norm", "head_bias") if getattr(shape, name))
    if shape.layer_norms != 2:
        yield f"{shape.layer_norms} norms a layer"
    if shape.norm == "layer":
        yield "layer norm" if shape.norm_bias else "layer norm without bias"
    if shape.ffn_matrices == 2:
        yield "two matrices"
    if shape.mla is not None:
        yield "mla"
    if shape.moe is not None:
        yield f"{shape.moe.router_score} experts"
        if shape.moe.shared_expert_gate:
            yield "gated shared experts"


def _gpt2(shape: ModelShape) -> dict[str, Any]:
    return {
        "n_layer": shape.layers, "n_embd": shape.hidden_size, "n_head": shape.heads, "n_inner": shape.ffn_size,
        "n_positions": shape.learned_positions, "layer_norm_epsilon": shape.norm_epsilon,
        "activation_function": GPT2_ACTIVATIONS.get(shape.ffn_activation, shape.ffn_activation),
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip


def _decoder(shape: ModelShape, positions: int) -> dict[str, Any]:
    """Configuration of decoders other than GPT-2. Biases of Qwen 2 are implied by its model type."""
    activation = "gelu_pytorch_tanh" if shape.ffn_activation == "gelu_tanh" else shape.ffn_activation
    found: dict[str, Any] = {
        "num_hidden_layers": shape.layers, "hidden_size": shape.hidden_size, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "intermediate_size": shape.ffn_size, "rms_norm_eps": shape.norm_epsilon,
        "hidden_act": activation, "rope_theta": shape.rope_theta, "rope_scaling": _rope_scaling(shape.rope_scaling),
        "max_position_embeddings": positions, "attention_bias": shape.output_bias, "mlp_bias": shape.ffn_bias,
        "sliding_window": shape.sliding_window or None, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    return found | (_latent(shape) if shape.mla else {"head_dim": shape.head_size}) | _experts(shape)


def _rope_scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    common = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "linear":
        return common
    common["original_max_position_embeddings"] = scaling.original_positions
    if scaling.kind == "llama3":
        return common | {"low_freq_factor": scaling.low_frequency, "high_freq_factor": scaling.high_frequency}
    magnitudes = {
        "mscale": scaling.magnitude,
        "mscale_all_dim": scaling.magnitude_all,
        "attention_factor": scaling.attention_factor,
    }
    turns = {"beta_fast": scaling.fast_turns, "beta_slow": scaling.slow_turns, "truncate": scaling.whole_bounds}
    return common | turns | {name: value for name, value in magnitudes.items() if value}


def _latent(shape: ModelShape) -> dict[str, Any]:
    assert shape.mla is not None
    sizes = shape.mla
    return {
        "q_lora_rank": sizes.query_rank or None, "kv_lora_rank": sizes.key_value_rank, "qk_rope_head_dim": sizes.rope_head_size,
        "qk_nope_head_dim": sizes.nope_head_size, "v_head_dim": sizes.value_head_size,
    }  # fmt: skip


def _experts(shape: ModelShape) -> dict[str, Any]:
    if shape.moe is None:
        return {}
    moe = shape.moe
    # all layers of Mixtral have experts, so its intermediate_size is the experts'
    only = {"intermediate_size": moe.expert_ffn_size} if model_type_of(shape) == "mixtral" else {}
    coefficient = round(moe.balance_coefficient * shape.layers / moe.experts_per_token, 12)
    return only | {
        "num_experts": moe.experts, "num_local_experts": moe.experts, "n_routed_experts": moe.experts,
        "num_experts_per_tok": moe.experts_per_token, "moe_intermediate_size": moe.expert_ffn_size,
        "n_shared_experts": moe.shared_experts, "first_k_dense_replace": moe.first_dense_layers,
        "norm_topk_prob": moe.router_normalised, "n_group": moe.router_groups, "topk_group": moe.router_groups_per_token,
        "routed_scaling_factor": moe.routed_scale, "router_aux_loss_coef": coefficient, "output_router_logits": coefficient > 0,
        "aux_loss_alpha": moe.balance_coefficient, "seq_aux": True,
    }  # fmt: skip
