"""Checkpoints to keep: the newest, and those with the lowest evaluation loss."""

from pathlib import Path

from strategist.contract import checkpoint
from strategist.errors import FileError


def checkpoints_to_remove(folder: str | Path, step: int, keep: int, keep_best: int = 0) -> tuple[Path, ...]:
    """The checkpoints to remove once that of ``step`` is published, oldest first: all up to ``step`` except the ``keep`` newest
    and the ``keep_best`` with the lowest evaluation loss. Later ones belong to another session, or are damaged.
    """
    found = [path for path in checkpoint.complete_checkpoints(folder) if (checkpoint.step_of(path) or 0) <= step]
    best_checkpoints = best(folder, keep_best)
    return tuple(path for path in found[:-keep] if path not in best_checkpoints)


def best(folder: str | Path, count: int = 1) -> tuple[Path, ...]:
    """The ``count`` checkpoints with the lowest evaluation loss, best first; the older one of equals. Those that were not
    evaluated or cannot be read are left out.
    """
    losses = {path: loss for path in checkpoint.complete_checkpoints(folder) if (loss := _loss(path)) is not None} if count else {}
    return tuple(sorted(losses, key=losses.__getitem__))[:count]


def _loss(path: Path) -> float | None:
    try:
        return checkpoint.read(path).evaluation_loss
    except FileError:
        return None
