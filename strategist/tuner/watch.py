"""Reports new trials of a study while other processes tune it."""

import time
from collections.abc import Callable
from pathlib import Path

from strategist.contract.study import RESULT, Study, StudyStatus, StudyTrial
from strategist.errors import FileError
from strategist.ledger.ledger import Ledger
from strategist.tuner.study import study_of

POLL_SECONDS = 0.5
IDLE_SECONDS = 30.0
"""Seconds without a running trial after which a study counts as idle: a tuner proposes within seconds, and the lease of a killed
one expires within this time.
"""

OnLook = Callable[[Study, tuple[StudyTrial, ...]], None]


def watch(location: str | Path, on_look: OnLook, idle_seconds: float = IDLE_SECONDS) -> Study:
    """Calls ``on_look`` twice a second with the current study and the trials that finished since the last call, in the order in
    which they ended.

    Returns the study when a tuner has ended it, or when nothing has run for ``idle_seconds``.

    Raises:
        FileError, InputError: there is no such study, or it cannot be read any more.
    """
    reported: set[int] = set()
    busy = time.monotonic()
    with Ledger.open(location) as ledger:
        result = ledger.folder and ledger.folder / RESULT
        before = _written(result)
        while True:
            has_ended = _written(result) != before  # read before the study, so that the last call has all trials
            study, now = study_of(ledger), time.monotonic()
            fresh = sorted(
                (trial for trial in study.finished if trial.number not in reported), key=lambda trial: trial.ended or 0.0
            )
            reported.update(trial.number for trial in fresh)
            on_look(study, tuple(fresh))
            if study.status is StudyStatus.RUNNING or (fresh and len(reported) > len(fresh)):
                busy = now
            elif now - busy > idle_seconds or has_ended:
                return study
            time.sleep(POLL_SECONDS)


def _written(result: Path | None) -> float | None:
    """Modification time of the result file, which a tuner writes at its end; None if there is none."""
    try:
        return None if result is None else result.stat().st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(result, f"cannot be read: {error.strerror}; name another file") from None
