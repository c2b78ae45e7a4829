"""Preset match: finds presets that have the same price as a model shape."""

from dataclasses import replace
from functools import cache

from strategist.contract.model import ModelShape
from strategist.profiles.models import find_preset, presets


def related_presets(shape: ModelShape, vocabulary: bool = True) -> tuple[ModelShape, ...]:
    """Presets with the same price as the shape; of any vocabulary if the shape's is unknown (``vocabulary=False``)."""
    priced_fields = _priced_fields(shape, vocabulary)
    return tuple(known for known in _presets() if _priced_fields(known, vocabulary) == priced_fields)


@cache
def _presets() -> tuple[ModelShape, ...]:
    return tuple(filter(None, map(find_preset, presets())))


def _priced_fields(model: ModelShape, vocabulary: bool) -> ModelShape:
    """The shape without fields that no price depends on."""
    moe = model.moe and replace(model.moe, balance_coefficient=0.0, routed_scale=1.0, router_normalised=True)
    return replace(
        model, name="", norm_epsilon=0.0, rope_theta=0.0, activation=model.ffn_activation, rope_scaling=None, moe=moe,
        vocab_size=model.vocab_size if vocabulary else 1,
    )  # fmt: skip
