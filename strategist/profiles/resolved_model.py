"""A model as its name resolves: a shape, how its weights are stored, and where both come from."""

from collections.abc import Mapping
from typing import Any

from strategist.contract.model import ModelShape
from strategist.frozen import frozen

BITSANDBYTES_4_BIT = "bitsandbytes 4-bit"
"""Weights of a frozen base of QLoRA: transformers loads them as they are stored, whatever the arguments of a script."""


@frozen
class ResolvedModel:
    """A model as its name resolves.

    note: where the shape comes from, if the name leaves that open.
    stored: how its weights are quantized on disk; empty if they are not, or if that is unknown.
    """

    shape: ModelShape
    note: str = ""
    stored: str = ""


def stored_weights(config: Mapping[str, Any]) -> str:
    """How the weights of a ``config.json`` are quantized, by its ``quantization_config``; empty without one."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return ""
    if quantization.get("load_in_4bit") is True:
        return BITSANDBYTES_4_BIT
    return str(quantization.get("quant_method") or "a quantized type")
