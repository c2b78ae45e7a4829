"""A tuning as a stream of JSON lines, one for each relevant event."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum

from strategist.contract.study import StudyTrial
from strategist.frozen import frozen
from strategist.search.tuning_result import Confirmation
from strategist.tuner import flat_table
from strategist.tuner.event import EventType, TuneEvent
from strategist.tuner.tuning_follower import TuningFollower, TuningSnapshot


class LineType(StrEnum):
    """Kind of a line."""

    BEGUN = "begun"
    TRIAL_STARTED = "trial_started"
    TRIAL_FINISHED = "trial_finished"
    WAITING = "waiting"
    ENDED = "ended"


@frozen
class TuneLine:
    """A line of the stream.

    event, time: the kind of the line, and ISO 8601 in UTC.
    trials, finished: number of the last trial to run, and number of finished trials.
    trial: row of the trial that started or finished, as in ``strategist watch --json`` and exported tables; None in other lines.
        best, best_*: number and figures of the best trial; the remaining figures are the metrics of the study.
    why, confirmation: why the tuning ended, and how certain its best is; only in the last line.
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


class TuneLines:
    """The lines of a tuning of the named study, event by event."""

    def __init__(self, study: str) -> None:
        self._study = study
        self._follower = TuningFollower()
        self._last: TuningSnapshot | None = None

    def take(self, event: TuneEvent) -> Iterator[TuneLine]:
        """Lines for what happened since the last event; successive waiting events give one line."""
        waited = self._last is not None and self._last.event.event_type is EventType.WAITING
        self._last = snapshot = self._follower.take(event)
        if event.event_type is EventType.BEGUN:
            yield self._line(snapshot, LineType.BEGUN)
            return
        for trial in snapshot.ended:
            yield self._line(snapshot, LineType.TRIAL_FINISHED, trial)
        if event.event_type is EventType.STARTED:
            yield self._line(snapshot, LineType.TRIAL_STARTED, snapshot.event_trial)
        if event.event_type is EventType.WAITING and not waited:
            yield self._line(snapshot, LineType.WAITING)

    def end(self, reason: str, confirmation: Confirmation | None = None) -> Iterator[TuneLine]:
        """The last line: why the tuning ended, and how certain its best is; none if the tuning had not begun."""
        if self._last is not None:
            yield replace(self._line(self._last, LineType.ENDED), why=reason, confirmation=confirmation)

    def _line(self, snapshot: TuningSnapshot, line_type: LineType, trial: StudyTrial | None = None) -> TuneLine:
        event, metrics = snapshot.event, snapshot.metrics
        best = metrics.best.measurement if metrics.best else None
        return TuneLine(
            event=line_type, time=flat_table.iso(datetime.now(UTC)), study=self._study, trials=event.trials,
            finished=len(event.state.results), trial=None if trial is None else flat_table.row(trial),
            best=metrics.best.number if metrics.best else None, best_step_seconds=best.step_seconds if best else None,
            best_tokens_per_second=best.tokens_per_second if best else None,
            best_peak_memory_bytes=max(best.peak_memory_bytes, default=None) if best else None,
            ahead_of_first=metrics.ahead_of_first, unlearned_step_error=metrics.unlearned_error,
            proposed_step_error=metrics.proposed_error, expected_gain=event.expected_gain, device_hours=metrics.device_hours,
            price_dollars=metrics.price_dollars, seconds_left=snapshot.seconds_left,
        )  # fmt: skip
