"""Pipeline stages in the notation of Megatron-LM: ``Et*2|t*2|tL``."""

from collections.abc import Sequence

STAGES = "stages"
"""Placeholder in a command for the plan's stages."""


def stage_list(layers: Sequence[int]) -> str:
    """All stages, with embedding (E), layers (t) and loss (L). ``layers``: number of layers of each stage."""
    return "|".join(["E" * (at == 0) + _layers(count) + "L" * (at == len(layers) - 1) for at, count in enumerate(layers)])


def _layers(count: int) -> str:
    return f"t*{count}" if count > 1 else "t" * count
