"""Rows of the shipped measurements, and made-up rows for single columns."""

from functools import cache
from typing import Any

from strategist.accuracy.row import Row, read_rows
from strategist.paths import data_dir

FOLDER = data_dir("profiles") / "measurements" / "published"


@cache
def rows(stem: str) -> tuple[Row, ...]:
    """All rows of a shipped file."""
    return read_rows(FOLDER / f"{stem}.csv")


def row(stem: str, row_id: str) -> Row:
    """The row of a shipped file with this id."""
    return next(item for item in rows(stem) if item.row_id == row_id)


def made(**cells: Any) -> Row:
    """A complete row of a plain run on 8 H100; given cells replace those."""
    plain: dict[str, Any] = {
        "file": "made", "line": 2, "model": "Llama 3 8B", "gpu": "H100", "n_gpus": 8, "tp": 1, "pp": 1, "dp_shard": 8,
        "dp_replicate": 1,
        "zero_stage": 3, "seq_len": 4096, "micro_batch": 1, "global_batch": 16, "precision": "bf16", "step_time_s": 2.0, "oom": 0,
    }  # fmt: skip
    return Row(**{**plain, **cells})
