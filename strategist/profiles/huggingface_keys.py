"""Facts of a Hugging Face configuration that more than one key or spelling gives: RoPE, activation, sliding windows."""

from collections.abc import Callable, Mapping
from typing import Any

from strategist.contract.model import RopeScaling
from strategist.errors import FileError

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
"""Activation functions by their names in transformers; other names stay unchanged."""

Value = Callable[[str], Any]
"""Access to the values of a configuration by key, defaults included."""


def _number(data: Mapping[str, Any], key: str, default: float) -> float:
    value = data.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def activation_of(value: Value, entry: str, *, gated: bool) -> str:
    """The activation function that ``entry`` names, or whose ``$key`` it is; empty for the usual one."""
    name = value(entry[1:]) if entry.startswith("$") else entry
    activation = ACTIVATIONS.get(str(name), str(name))
    return "" if name is None or activation == ("silu" if gated else "gelu_tanh") else activation


def _rope_parameters(value: Value) -> Mapping[str, Any]:
    """``rope_parameters`` of transformers 5, or ``rope_scaling`` of 4; with two kinds of layers, those of full attention."""
    found = value("rope_scaling") or value("rope_parameters")
    if not isinstance(found, dict):
        return {}
    full = found.get("full_attention")
    return full if isinstance(full, dict) else found


def rope_theta_of(value: Value, entry: str) -> float:
    """The base of RoPE; the key is at the top up to transformers 4, and inside ``rope_parameters`` since 5."""
    nested = _rope_parameters(value).get("rope_theta")
    return _number({"theta": value(entry[1:]) if nested is None else nested}, "theta", 10000.0)


def rope_scaling_of(value: Value) -> RopeScaling | None:
    """RoPE scaling; None without scaling."""
    found = _rope_parameters(value)
    kind = found.get("rope_type", found.get("type", "default"))
    if kind in ("default", "mrope"):  # mrope: positions of images; those of text stay as they are
        return None
    original = _number(found, "original_max_position_embeddings", _number({"now": value("max_position_embeddings")}, "now", 0))
    return RopeScaling(
        kind=str(kind),
        factor=_number(found, "factor", 1.0),
        original_positions=int(original),
        low_frequency=_number(found, "low_freq_factor", 1.0),
        high_frequency=_number(found, "high_freq_factor", 4.0),
        fast_turns=_number(found, "beta_fast", 32.0),
        slow_turns=_number(found, "beta_slow", 1.0),
        whole_bounds=found.get("truncate", True) is not False,
        magnitude=_number(found, "mscale", 0.0),
        magnitude_all=_number(found, "mscale_all_dim", 0.0),
        attention_factor=_number(found, "attention_factor", 0.0),
    )


def sliding_windows(path: object, value: Value, shape: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """Sliding window in tokens, and n if every n-th layer has full attention (0: no layer); (0, 0) without a window.

    shape: row of the model type; its entry ``full_attention_every`` holds where the configuration lists no ``layer_types``.

    Raises:
        FileError: layers with full attention do not return regularly.
    """
    window, types = value("sliding_window") if "sliding_window" in shape else None, value("layer_types")
    if type(window) is not int or window < 1 or value("use_sliding_window") is False:
        return 0, 0
    if not isinstance(types, list) and (first := value("max_window_layers")) is not None:  # those before it have full attention
        if type(first) is int and (first >= layers or first <= 0):
            return (0, 0) if first >= layers else (window, 0)
    elif not isinstance(types, list):
        entry = shape.get("full_attention_every", 0)
        every = value(entry[1:]) if isinstance(entry, str) else entry
        if type(every) is not int or every < 0:
            raise FileError(path, f"key {str(entry)[1:]!r} is {every!r}: a whole number is needed; correct it")
        return window, every
    else:
        whole = [name == "full_attention" for name in types]
        for every in range(len(whole) + 1):
            if every != 1 and whole == [every > 0 and layer % every == 0 for layer in range(1, len(whole) + 1)]:
                return window, every
        if all(whole):
            return 0, 0
    law = "layers with full attention that do not return regularly cannot be read"
    key = "layer_types" if isinstance(types, list) else "max_window_layers"
    raise FileError(path, f"key {key!r}: {law}; describe the shape in a YAML file")
