"""A tuning as a stream of JSON lines, one for each relevant event."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from strategist.contract.study import StudyTrial
from strategist.search.tuning_result import Confirmation
from strategist.tuner import flat_table
from strategist.tuner.event import TuneEvent
from strategist.tuner.study import trial_of
from strategist.tuner.study_metrics import StudyMetrics, seconds_left


class LineType(StrEnum):
    """Kind of a line."""

    BEGUN = "begun"
    TRIAL_STARTED = "trial_started"
    TRIAL_FINISHED = "trial_finished"
    WAITING = "waiting"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class TuneLine:
    """A line. ``time`` is ISO 8601 in UTC; ``trial`` the row of the trial in question, as ``strategist watch --json`` and
    exported tables have it. The rest is the study at that moment: of ``trials`` to reach ``finished`` are, figures of the ``best``
    by its number, and those of its metrics. ``why`` says why a tuning ended, and ``confirmation`` how sure its best is.
    """

    event: LineType
    time: str
    study: str
    trials: int
    finished: int
    trial: dict[str, flat_table.Cell] | None
    best: int | None
    best_step_seconds: float | None
    best_tokens_per_second: float | None
    best_peak_memory_bytes: int | None
    ahead_of_first: float | None
    unlearned_step_error: float | None
    proposed_step_error: float | None
    expected_gain: float | None
    device_hours: float
    price_dollars: float | None
    seconds_left: float | None
    why: str = ""
    confirmation: Confirmation | None = None


def line(
    happened: LineType,
    event: TuneEvent,
    known: StudyMetrics,
    study: str,
    trial: StudyTrial | None = None,
    why: str = "",
    confirmation: Confirmation | None = None,
) -> TuneLine:
    """The line for what happened, as the study was at the event."""
    best = known.best.measurement if known.best else None
    return TuneLine(
        event=happened, time=flat_table.iso(datetime.now(UTC)), study=study, trials=event.trials,
        finished=len(event.state.results),
        trial=None if trial is None else flat_table.row(trial), best=known.best.number if known.best else None,
        best_step_seconds=best.step_seconds if best else None,
        best_tokens_per_second=best.tokens_per_second if best else None,
        best_peak_memory_bytes=max(best.peak_memory_bytes, default=None) if best else None,
        ahead_of_first=known.ahead_of_first,
        unlearned_step_error=known.unlearned_error, proposed_step_error=known.proposed_error, expected_gain=event.expected_gain,
        device_hours=known.device_hours, price_dollars=known.price_dollars, seconds_left=seconds_left(event), why=why,
        confirmation=confirmation,
    )  # fmt: skip


def newly_finished(event: TuneEvent, told: set[int]) -> list[StudyTrial]:
    """The trials of any tuner that ended since those whose numbers were ``told``, in the order in which they ended."""
    rows = [row for row in event.state.rows if row.number in event.state.results and row.number not in told]
    told.update(row.number for row in rows)
    return sorted((trial_of(row, event.state.goals) for row in rows), key=lambda trial: trial.ended or 0.0)
