"""Curves of a run, written by rank 0 after each step: ``curves.jsonl`` and ``curves.csv`` always, TensorBoard if it is installed,
and Weights & Biases if a project is named.

Loss and norm are those of the whole step, equal on all ranks; memory is that of rank 0's device.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from strategist.errors import FileError, InputError

JSON_LINES, CSV, WANDB_ID = "curves.jsonl", "curves.csv", "wandb-run-id"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step. The fields are the columns of the files.

    step: from 0 on. samples, tokens: read by the training up to the end of the step. loss, grad_norm: None if not finite.
    evaluation_loss: None if no evaluation follows the step. seconds: of the step, without evaluation and save. mfu: None without a
        predicted step time. memory_bytes: peak memory of the device's tensors so far; on CPU, memory of the process at the end of
        the step minus that before the model was made. skipped: no parameter was updated.
    """

    step: int
    samples: int
    tokens: int
    loss: float | None
    grad_norm: float | None
    learning_rate: float
    evaluation_loss: float | None
    seconds: float
    tokens_per_second: float
    mfu: float | None
    memory_bytes: int
    skipped: bool

    def curves(self) -> dict[str, float]:
        """The figures that are plotted over steps."""
        return {name: value for name, value in asdict(self).items() if name not in ("step", "skipped") and value is not None}


COLUMNS = tuple(field.name for field in fields(Row))


class Curves:
    """Writes one row per step. A session that resumes at step ``first`` removes the rows from ``first`` on."""

    def __init__(self, folder: Path, first: int, *, wandb: str = "", config: dict[str, Any] | None = None) -> None:
        """``wandb`` is a project of Weights & Biases, empty for none; ``config`` describes the run there.

        Raises:
            FileError: the folder cannot be written.
            InputError: wandb is not installed.
        """
        self.json_lines_path, self.csv_path = folder / JSON_LINES, folder / CSV
        try:
            folder.mkdir(parents=True, exist_ok=True)
            earlier_rows = list(_rows_before(self.json_lines_path, first))
            _rewrite(self.json_lines_path, "".join(json.dumps(row) + "\n" for row in earlier_rows))
            _rewrite(self.csv_path, _csv(dict(zip(COLUMNS, COLUMNS, strict=True))) + "".join(map(_csv, earlier_rows)))
        except OSError as error:
            raise FileError(folder, f"cannot be written: {error.strerror}; choose another folder") from None
        self.board = _tensorboard_writer(folder, first)
        self.run = _wandb_run(folder, wandb, config or {}) if wandb else None

    def add(self, row: Row) -> None:
        """Writes the figures of one step."""
        with self.json_lines_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        with self.csv_path.open("a", encoding="utf-8", newline="") as file:
            file.write(_csv(asdict(row)))
        if self.board is not None:
            for name, value in row.curves().items():
                self.board.add_scalar(name, value, row.step)
        if self.run is not None:
            self.run.log(row.curves(), step=row.step)

    def close(self) -> None:
        """Closes the writers."""
        if self.board is not None:
            self.board.close()
        if self.run is not None:
            self.run.finish()


def _rows_before(path: Path, first: int) -> Iterator[dict[str, Any]]:
    """The complete rows of earlier steps; an incomplete line, left by a killed rank, is dropped."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            if row["step"] < first:
                yield row
        except (ValueError, KeyError, TypeError):
            continue


def _rewrite(path: Path, text: str) -> None:
    draft = path.with_suffix(path.suffix + ".draft")
    draft.write_text(text, encoding="utf-8", newline="")
    draft.replace(path)


def _csv(row: dict[str, Any]) -> str:
    """A line of the CSV file; missing figures are empty."""
    line = StringIO()
    csv.DictWriter(line, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n").writerow(row)
    return line.getvalue()


def _tensorboard_writer(folder: Path, first: int) -> Any:
    """TensorBoard's writer; None if it is not installed."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # imports TensorBoard, an optional dependency

    return SummaryWriter(str(folder), purge_step=first)


def _wandb_run(folder: Path, project: str, config: dict[str, Any]) -> Any:
    """The run at Weights & Biases; sessions of one training share it, by the run id stored in the folder."""
    if find_spec("wandb") is None:
        raise InputError(f"--wandb {project}", "needs wandb, which is not installed", "pip install 'torch-strategist[wandb]'")
    import wandb  # optional dependency

    id_file = folder / WANDB_ID
    if not id_file.is_file():
        id_file.write_text(uuid4().hex[:8], encoding="ascii")
    return wandb.init(project=project, id=id_file.read_text(encoding="ascii"), resume="allow", dir=str(folder), config=config)
