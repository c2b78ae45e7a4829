"""Rows of published measurements: one CSV line each, with the columns of ``profiles/measurements/published``."""

import csv
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from strategist.accuracy.text_columns import settings
from strategist.errors import FileError, InputError
from strategist.frozen import frozen

REQUIRED_COLUMNS = ("model", "gpu", "n_gpus", "tp", "pp")
"""Columns that every table of published runs has."""


@frozen
class Row:
    """One published run. Empty cells are None: not published. Memory is in GiB, time in seconds, batches in sequences. ``ffn``
    of a model with experts is the width of one expert.
    """

    file: str
    line: int
    source: str = ""
    row_id: str = ""
    model: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    experts: int | None = None
    topk: int | None = None
    seq_len: int | None = None
    params_b: float | None = None
    gpu: str = ""
    gpu_mem_gb: float | None = None
    n_gpus: int | None = None
    gpus_per_node: int | None = None
    interconnect_intra: str = ""
    interconnect_inter: str = ""
    dp_replicate: int | None = None
    dp_shard: int | None = None
    zero_stage: int | None = None
    tp: int | None = None
    sp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    schedule: str = ""
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    ac_mode: str = ""
    compile: int | None = None
    precision: str = ""
    fp8_recipe: str = ""
    flash_attention: str = ""
    optimizer: str = ""
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    peak_mem_gib: float | None = None
    mem_kind: str = ""
    oom: int | None = None
    notes: str = ""
    url_or_path: str = ""

    @property
    def text(self) -> str:
        """All text columns, joined."""
        return " ; ".join((self.model, self.source, self.schedule, self.optimizer, self.notes, self.url_or_path))

    @cached_property
    def settings(self) -> dict[str, str]:
        """The framework's own settings, from a command line that the notes quote after ``ARGS:``; empty without one."""
        _, quoted, line = self.notes.partition("ARGS:")
        return settings(line) if quoted else {}


ZERO_IS_A_VALUE = ("zero_stage", "sp", "compile", "oom")
"""Integer columns in which 0 is a value; in all others it means not published."""

MAX_VALUE = 1e12
"""Largest valid number; larger ones are typing errors."""

_TYPES = {item.name: getattr(item.type, "__name__", str(item.type)) for item in fields(Row) if item.name not in ("file", "line")}


def read_rows(path: Path) -> tuple[Row, ...]:
    """All rows of a CSV file, or of every CSV file in a folder.

    Raises:
        FileError: a file is missing, is no such table, or a cell that must be a number is none.
        InputError: the folder holds no CSV file.
    """
    if path.is_dir():
        files = sorted(path.glob("*.csv"))
        if not files:
            raise InputError(f"--data {path}", "the folder holds no CSV file", "give a CSV file or a folder of them")
        return tuple(row for file in files for row in _file_rows(file))
    return tuple(_file_rows(path))


def _file_rows(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in REQUIRED_COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise FileError(path, f"is not a table of published runs: column {missing[0]} is missing; add it", line=1)
            for cells in reader:
                yield _row(path, reader.line_num, cells)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}; name another file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(path, f"is not a CSV text: {error}") from None


def _row(path: Path, line: int, cells: dict[str, str | None]) -> Row:
    values: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        cell = (cells.get(name) or "").strip()
        if cell and kind != "str":
            number = _number(path, line, name, cell, integer=kind.startswith("int"))
            values[name] = number if number or name in ZERO_IS_A_VALUE else None
        elif cell:
            values[name] = cell
    return Row(file=path.stem, line=line, **values)


def _number(path: Path, line: int, name: str, cell: str, *, integer: bool) -> float | int:
    try:
        value = float(cell)
    except ValueError:
        raise FileError(path, f"{name} {cell!r} is not a number; leave unknown cells empty", line=line) from None
    if not 0 <= value <= MAX_VALUE or (integer and value != int(value)):
        law = f"must be a {'whole ' if integer else ''}number from 0 to {MAX_VALUE:.0e}"
        raise FileError(path, f"{name} {cell!r} {law}; leave unknown cells empty", line=line)
    return int(value) if integer else value
