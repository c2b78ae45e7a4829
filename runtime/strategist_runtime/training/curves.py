"""Curves of a run, written by rank 0 while it runs: ``curves.jsonl`` always, and for TensorBoard where that is installed.

Loss and norm are those of the whole step, equal on all ranks.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from strategist.errors import FileError
from strategist_runtime.training.trainer import StepResult

FILE = "curves.jsonl"


class Curves:
    """One line, and one point of each curve, a step. A session that goes on from a step takes back what was written after it."""

    def __init__(self, folder: Path, first: int) -> None:
        """Raises FileError where the folder cannot be written."""
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(".draft")
            draft.write_text("".join(_lines_before(self.path, first)), encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            raise FileError(folder, f"cannot be written: {error.strerror}; choose another folder") from None
        self.board = _board(folder, first)

    def add(self, step: int, result: StepResult, *, learning_rate: float, tokens_per_second: float, memory_bytes: int) -> None:
        """The figures of one step."""
        figures = {
            "loss": result.loss, "grad_norm": result.grad_norm, "learning_rate": learning_rate,
            "tokens_per_second": tokens_per_second, "memory_bytes": memory_bytes,
        }  # fmt: skip
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **figures}) + "\n")
        if self.board is not None:
            for name, value in figures.items():
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        """Nothing follows."""
        if self.board is not None:
            self.board.close()


def _lines_before(path: Path, first: int) -> Iterator[str]:
    """The whole lines of earlier steps; what a killed rank wrote of half a line is dropped."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            if json.loads(line)["step"] < first:
                yield line + "\n"
        except (ValueError, KeyError, TypeError):
            continue


def _board(folder: Path, first: int) -> Any:
    """TensorBoard's writer; None where it is not installed."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # imports TensorBoard, which is not always there

    return SummaryWriter(str(folder), purge_step=first)
