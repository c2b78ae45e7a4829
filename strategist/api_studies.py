"""The use-cases of studies beside tuning: looked at, followed, exported, imported and merged. ``strategist.api`` hands them out.

A study is named by its folder, or by its address on a server: ``postgresql://USER@HOST/DATABASE?study=NAME``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist.api_cards import Folders, Ids, load_cards
from strategist.contract import codec
from strategist.contract.request import Request
from strategist.cost.calibration import Calibration

if TYPE_CHECKING:
    from strategist.tuner.adopt import Adopted
    from strategist.tuner.study import Study, StudySummary, StudyTrial
    from strategist.tuner.watch import OnTrial


def list_studies(places: Sequence[str | Path] = (".",)) -> "list[StudySummary]":
    """The studies in folders and below them, and in databases of servers; one that cannot be read says why.

    Raises:
        FileError, InputError: there is no such folder, or the server cannot be asked.
    """
    from strategist.tuner.study import find, summary

    return [summary(study) for place in places for study in find(place)]


def study(place: str | Path) -> "Study":
    """A study with all its trials.

    Raises:
        FileError, InputError: there is none, or its ledger cannot be read.
    """
    from strategist.tuner.study import read

    return read(place)


def trial_row(trial: "StudyTrial") -> dict[str, Any]:
    """A trial as a flat row, as an exported table has it: ``pandas.DataFrame(map(trial_row, study(place).trials))``."""
    from strategist.tuner.flat import row

    return row(trial)


def watch_study(place: str | Path, on_trial: "OnTrial", idle_seconds: float | None = None) -> "Study":
    """Calls ``on_trial`` for every finished trial until a tuner has ended the study, or nothing has run for some time.

    Raises:
        FileError, InputError: there is no such study, or it cannot be read any more.
    """
    from strategist.tuner.watch import IDLE_SECONDS, watch

    return watch(place, on_trial, IDLE_SECONDS if idle_seconds is None else idle_seconds)


def export_study(place: str | Path, target: str) -> int:
    """Writes a study to a .csv, .parquet or .jsonl file, or to a storage of Optuna's (sqlite:///FILE.db). Returns the number of
    trials written.

    Raises:
        FileError, InputError: the study cannot be read, or the target not be written.
    """
    from strategist.tuner.export import export

    return export(place, target)


def import_trials(
    path: str | Path,
    study: str | Path,
    *,
    request: Request | None = None,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
    server: str = "",
) -> "Adopted":
    """Takes measured candidates out of a .csv, .parquet or .jsonl file into a study, which ``request`` begins where there is none.

    Raises:
        FileError, InputError: the file holds something else, or the study is of another request; nothing was taken then.
    """
    from strategist.tuner.adopt import import_file

    factors = None if calibration is None else codec.load(Calibration, calibration)
    deck = load_cards(cards, without)
    return import_file(Path(path), Path(study), deck=deck, request=request, calibration=factors, server=server)


def merge_studies(studies: Sequence[str | Path], into: str | Path, *, server: str = "") -> "Adopted":
    """Takes the trials of studies of one request into another study, each candidate once.

    Raises:
        FileError, InputError: they are of different requests, or one cannot be read or written.
    """
    from strategist.tuner.adopt import merge

    return merge(studies, Path(into), server)
