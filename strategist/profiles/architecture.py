"""Architecture facts of a Hugging Face configuration that affect the meaning of trained weights, but no price."""

from typing import Any

from strategist.contract.model import RopeScaling
from strategist.errors import FileError

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
"""Activation functions by their names in transformers; other names stay unchanged."""

EPSILONS = {"mixtral": 1e-5, "phi3": 1e-5, "gpt_oss": 1e-5, "gpt2": 1e-5, "gpt_neox": 1e-5}
"""Defaults of the norm's epsilon in transformers 5, by model type; 1e-6 for other types."""


def facts(path: object, data: dict[str, Any], *, layers: int, gated: bool) -> dict[str, Any]:
    """Fields of ModelShape."""
    kind = str(data.get("model_type"))
    window, every = _sliding_windows(path, data, layers)
    return {
        "norm_epsilon": _number(data, ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"), EPSILONS.get(kind, 1e-6)),
        "activation": _activation(data, kind, gated),
        "rope_scaling": _rope_scaling(data),
        "sliding_window": window,
        "full_attention_every": every,
    }


def _number(data: dict[str, Any], keys: tuple[str, ...], default: float) -> float:
    values = (data.get(key) for key in keys)
    return next((float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)), default)


def _activation(data: dict[str, Any], kind: str, gated: bool) -> str:
    name = data.get("hidden_activation") or data.get("hidden_act") or data.get("activation_function")
    if name is None or kind == "gemma":  # transformers reads gemma's "gelu" as gelu_tanh
        return "gelu_tanh" if kind == "gemma" else ""
    activation = ACTIVATIONS.get(str(name), str(name))
    return "" if activation == ("silu" if gated else "gelu_tanh") else activation


def _rope_scaling(data: dict[str, Any]) -> RopeScaling | None:
    """RoPE scaling; the key is ``rope_scaling`` up to transformers 4 and ``rope_parameters`` since 5. None without scaling."""
    scaling = data.get("rope_scaling") or data.get("rope_parameters")
    kind = scaling.get("rope_type", scaling.get("type", "default")) if isinstance(scaling, dict) else "default"
    if not isinstance(scaling, dict) or kind == "default":
        return None
    original = _number(scaling, ("original_max_position_embeddings",), _number(data, ("max_position_embeddings",), 0))
    return RopeScaling(
        kind=str(kind),
        factor=_number(scaling, ("factor",), 1.0),
        original_positions=int(original),
        low_frequency=_number(scaling, ("low_freq_factor",), 1.0),
        high_frequency=_number(scaling, ("high_freq_factor",), 4.0),
        fast_turns=_number(scaling, ("beta_fast",), 32.0),
        slow_turns=_number(scaling, ("beta_slow",), 1.0),
        whole_bounds=scaling.get("truncate", True) is not False,
        magnitude=_number(scaling, ("mscale",), 0.0),
        magnitude_all=_number(scaling, ("mscale_all_dim",), 0.0),
        attention_factor=_number(scaling, ("attention_factor",), 0.0),
    )


def _sliding_windows(path: object, data: dict[str, Any], layers: int) -> tuple[int, int]:
    """Sliding window in tokens, and n if every n-th layer has full attention (0: no layer); (0, 0) without a window."""
    kind = data.get("model_type")
    default = 4096 if kind == "mistral" else 128 if kind == "gpt_oss" else None
    window = data.get("sliding_window", default)
    if type(window) is not int or window < 1 or (kind in ("qwen2", "qwen3", "qwen3_moe") and not data.get("use_sliding_window")):
        return 0, 0
    types = data.get("layer_types")
    if not isinstance(types, list):
        return window, 2 if kind == "gpt_oss" else 0
    full_attention = [name == "full_attention" for name in types]
    for every in (0, *range(2, layers + 1)):
        if full_attention == [every > 0 and layer % every == 0 for layer in range(1, layers + 1)]:
            return window, every
    if all(full_attention):
        return 0, 0
    law = "layers with full attention that do not return regularly cannot be read"
    raise FileError(path, f"key 'layer_types': {law}; describe the shape in a YAML file")
