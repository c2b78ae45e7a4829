"""API of published measurements: the cost model's errors on them, and the trials that a search needs to find a sweep's best row.
Exported by ``strategist.api``.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strategist.errors import InputError, not_among
from strategist.paths import data_dir
from strategist.search.settings import SAMPLERS

if TYPE_CHECKING:
    from strategist.accuracy.case import Case
    from strategist.accuracy.prediction_errors import Accuracy
    from strategist.accuracy.row import Row
    from strategist.contract.replay import ReplayDocument, TransferDocument
    from strategist.tuner.replay_benchmark import OnSweep
    from strategist.tuner.transfer_benchmark import OnPair

HISTORY = ".jsonl"


def accuracy(data: str | Path | None = None, *, source: str = "") -> "Accuracy":
    """Errors of the cost model on published measurements.

    Args:
        data: a CSV file or a folder of them; None for the shipped ones.
        source: uses only the files whose names contain this text.

    Raises:
        InputError: there is no such source, or no row.
        FileError: a file is not a table of published runs.
    """
    from strategist.accuracy import prediction_errors

    rows = _published(data)
    chosen = [row for row in rows if source in row.file]
    if not chosen:
        files = ", ".join(sorted({row.file for row in rows}))
        raise InputError(f"--source {source}", "matches no file name", f"known are {files}")
    return prediction_errors.accuracy(chosen)


def replay(
    data: str | Path | None = None,
    *,
    samplers: Sequence[str] | None = None,
    seeds: int = 5,
    on_sweep: "OnSweep | None" = None,
) -> "ReplayDocument":
    """Number of trials that searches of published sweeps need to come near the best row.

    Each sweep is priced without its own rows, by factors fitted to all other rows, including the shipped ones.

    Args:
        data: a CSV file, a folder of them, or a history (.jsonl); None for the shipped measurements.
        samplers: samplers that propose the trials, from ``strategist.api.SAMPLERS``; by default all but Optuna's Gaussian
            process (``gp``).
        seeds: number of searches of each sweep by a random sampler.
        on_sweep: called after each sweep with its name, the number of finished sweeps, and the number of all sweeps.

    Raises:
        InputError: there is no such sampler, or no sweep with enough rows.
        FileError: a file is not a table of published runs.
    """
    from strategist.tuner.replay_benchmark import replay as search_again

    chosen = tuple(name for name in SAMPLERS if name != "gp") if samplers is None else tuple(dict.fromkeys(samplers))
    if unknown := [name for name in chosen if name not in SAMPLERS] or ([""] if not chosen else []):
        raise not_among(f"--samplers {unknown[0]}", unknown[0], SAMPLERS, "is not a sampler")
    cases, data_cases = _cases(data)
    return search_again(cases, chosen, seeds, among=data_cases, processes=os.cpu_count() or 1, on_sweep=on_sweep)


def transfer(data: str | Path | None = None, *, on_pair: "OnPair | None" = None) -> "TransferDocument":
    """Number of trials that searches of published sweeps need after another sweep was searched, of another model or number of GPUs.

    Args:
        data: as in :func:`replay`.
        on_pair: called after each pair with its name, the number of finished pairs, and the number of all pairs.

    Raises:
        InputError: no two sweeps differ only in model or GPUs.
        FileError: a file is not a table of published runs.
    """
    from strategist.tuner.transfer_benchmark import transfer as search_after

    cases, data_cases = _cases(data)
    return search_after(cases, among=data_cases, processes=os.cpu_count() or 1, on_pair=on_pair)


def _cases(data: str | Path | None) -> "tuple[Sequence[Case], Sequence[Case]]":
    """All published cases, the shipped ones and those of ``data``; then those of ``data`` alone (default: the shipped ones)."""
    from strategist.accuracy.prediction_errors import read_cases

    own: Sequence[Case] | None = None
    if data is not None:  # first, since reading the shipped ones takes seconds, which an error need not
        own = _trial_cases(Path(data)) if Path(data).suffix == HISTORY else read_cases(_published(data))[0]
    shipped, _ = read_cases(_published(None))
    return (shipped, shipped) if own is None else ([*shipped, *own], own)


def _trial_cases(path: Path) -> "list[Case]":
    """The trials of a history as cases."""
    from strategist.accuracy.trial_cases import cases_of
    from strategist.profiles import history

    return cases_of(history.read(path).records, path.stem)


def _published(data: str | Path | None) -> "tuple[Row, ...]":
    """The rows of a table of published runs, of a folder of them, or of the shipped ones."""
    from strategist.accuracy.row import read_rows

    path = data_dir("profiles") / "measurements" / "published" if data is None else Path(data)
    rows = read_rows(path)
    if not rows:
        raise InputError(f"--data {path}", "holds no row", "give a table of published runs")
    return rows
