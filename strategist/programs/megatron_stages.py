"""The stages of a pipeline as Megatron-LM lists them: ``Et*2|t*2|tL``."""

from collections.abc import Sequence

STAGES = "stages"
"""The word with which a command lists a plan's stages."""


def stage_list(layers: Sequence[int]) -> str:
    """All stages, from the embedding (E) over their layers (t) to the loss (L)."""
    return "|".join(["E" * (at == 0) + _layers(count) + "L" * (at == len(layers) - 1) for at, count in enumerate(layers)])


def _layers(count: int) -> str:
    return f"t*{count}" if count > 1 else "t" * count
