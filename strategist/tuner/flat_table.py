"""Studies as flat tables (CSV, or Parquet through pandas): a row per trial, a column per setting, prediction and measured value.

Booleans are ``true`` or ``false``, unknown values are empty cells, times are ISO 8601 in UTC. CSV and Parquet hold the same values.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from strategist.contract.knobs import show_value
from strategist.contract.measurement import Measurement
from strategist.contract.settings import settings_of
from strategist.contract.study import Study, StudyTrial
from strategist.errors import FileError, InputError
from strategist.files import outputs

Cell = str | int | float | None

FIGURES = ("step_seconds", "tokens_per_second", "mfu", "comm_ratio", "exposed_comm_ratio", "bubble_ratio", "wall_seconds")
"""Fields of a measurement that are columns of the same name."""

ABOUT = ("number", "state", "outcome", "proposed_by", "attempts", "owner", "started", "ended", "front", "misses")
PREDICTED = ("predicted_step_seconds", "predicted_tokens_per_second", "predicted_peak_memory_bytes")
MEASURED = (*FIGURES, "peak_memory_bytes", "steps_measured", "message")
CSV, PARQUET = ".csv", ".parquet"


def row(trial: StudyTrial) -> dict[str, Cell]:
    """The trial as a row. Predictions are those made when it was proposed; peaks are allocated bytes of the rank with the
    highest. ``front`` is unknown in a study with one objective.
    """
    measured, estimate = trial.measurement, trial.plan.estimate
    about: dict[str, Cell] = {name: getattr(trial, name) for name in ABOUT}
    about |= {"front": None if trial.front is None else show_value(trial.front), "misses": ", ".join(trial.misses) or None}
    about |= {"started": _time(trial.started), "ended": _time(trial.ended), "outcome": trial.outcome and trial.outcome.value}
    settings = {
        name: value if type(value) is int else show_value(value) for name, value in settings_of(trial.plan.candidate).items()
    }
    predicted = (estimate.step_seconds, estimate.tokens_per_second, estimate.memory.allocated)
    return {**about, **dict(zip(PREDICTED, predicted, strict=True)), **_figures(measured), **settings}


def _figures(measured: Measurement | None) -> dict[str, Cell]:
    if measured is None:
        return dict.fromkeys(MEASURED)
    figures: dict[str, Cell] = {name: getattr(measured, name) for name in FIGURES}
    peak = max(measured.peak_memory_bytes, default=None)
    message = " ".join(measured.evidence.message.split()) or None
    return {**figures, "peak_memory_bytes": peak, "steps_measured": measured.steps_measured or None, "message": message}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else iso(datetime.fromtimestamp(seconds, UTC))


def iso(timestamp: datetime) -> str:
    """A time in the format of the cells."""
    return timestamp.isoformat(timespec="milliseconds")


def write(study: Study, path: Path, *, force: bool = False) -> None:
    """Writes the study as CSV or Parquet, by the file's suffix. Without ``force``, only a file that holds such a table is
    overwritten.

    Raises:
        FileError: the file cannot be written, or has other content.
        InputError: pandas or pyarrow is not installed.
    """
    rows = [row(trial) for trial in study.trials]
    if path.suffix == PARQUET:
        with outputs.replacement(path, marker=PREDICTED[0], force=force) as draft:
            _frame(rows).to_parquet(draft, index=False)
    else:
        outputs.write(path, _csv(rows), marker=PREDICTED[0], force=force)


def _csv(rows: Sequence[dict[str, Cell]]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ABOUT, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _frame(rows: Sequence[dict[str, Cell]]) -> Any:
    """The rows as a data frame. Columns without a known value get a fixed type, so that all exports of a study have one schema."""
    frame = _pandas().DataFrame(rows, columns=None if rows else list(ABOUT))
    for name in frame.columns:
        if frame[name].isna().all():
            kind = "float64" if name in (*FIGURES, "peak_memory_bytes", "steps_measured") else "string"
            frame[name] = frame[name].astype(kind)
    return frame


def _pandas() -> Any:
    try:
        import pandas
        import pyarrow  # noqa: F401  pandas reads and writes Parquet with it
    except ImportError as error:
        raise InputError(
            "Parquet", f"needs {error.name}, which is not installed", "pip install 'torch-strategist[tables]'"
        ) from None
    return pandas


def read(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV or Parquet file, each with its line number (in Parquet, its row number from 1); unknown cells are left out.

    Raises:
        FileError: the file is no such table.
        InputError: pandas or pyarrow is not installed.
    """
    if path.suffix == PARQUET:
        yield from _parquet_rows(path)
        return
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            for cells in reader:
                if None in cells or None in cells.values():
                    raise FileError(path, "the row has not as many cells as the first line; correct it", reader.line_num)
                yield reader.line_num, {name: text.strip() for name, text in cells.items() if text.strip()}
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}; name another file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(path, f"is not a CSV file: {error}") from None


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    pandas = _pandas()
    try:
        frame = pandas.read_parquet(path)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}; name another file") from None
    except ValueError as error:  # pyarrow's ArrowInvalid is a ValueError
        raise FileError(path, f"is not a Parquet file: {' '.join(str(error).split())}") from None
    for number, cells in enumerate(frame.to_dict("records"), start=1):
        yield number, {str(name): _text(value) for name, value in cells.items() if not _unknown(value)}


def _unknown(value: object) -> bool:
    return (
        value is None
        or value == ""
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType")
    )


def _text(value: Any) -> str:
    """The cell as CSV would hold it: integers that pandas made floats, because of a missing value in the column, become integers
    again.
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return show_value(bool(value)) if type(value).__name__ in ("bool", "bool_") else str(value)
