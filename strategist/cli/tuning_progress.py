"""Progress of a tuning: silent, a line a trial on standard error, or JSON lines on standard output.

The live view of a terminal is :mod:`strategist.cli.tune_view`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from strategist.cli import render
from strategist.contract.study import StudyTrial
from strategist.errors import StrategistError
from strategist.report.study import trial_line
from strategist.search.tuning_result import Confirmation, TuningResult
from strategist.tuner.event import EventType, TuneEvent
from strategist.tuner.json_lines import LineType, line, newly_finished
from strategist.tuner.study import trial_of
from strategist.tuner.study_metrics import StudyMetrics, metrics_at, seconds_left
from strategist.units import show_seconds

COMPLETE = "as many trials as were asked for are finished"


class ProgressView:
    """Receives each event and the result, and prints nothing."""

    def take(self, event: TuneEvent) -> None:
        """Hears of an event."""

    def end(self, result: TuningResult) -> None:
        """Hears the result."""


class TrialLines(ProgressView):
    """A line on standard error for each trial that ends, by whichever tuner."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def take(self, event: TuneEvent) -> None:
        """Tells what ended since the last event."""
        fresh = newly_finished(event, self._told)
        if event.event_type is EventType.BEGUN or not fresh:
            return
        best, left = event.state.best, seconds_left(event)
        state = f"{len(event.state.results)} of {event.trials} trials" + (f", about {show_seconds(left)} left" if left else "")
        for trial in fresh:
            render.print_note(f"{trial_line(trial, best.number if best else None)}; {state}")


class JsonLines(ProgressView):
    """A line of JSON on standard output for each event that matters."""

    def __init__(self, study: str) -> None:
        self._study = study
        self._told: set[int] = set()
        self._waiting = False
        self._last: tuple[TuneEvent, StudyMetrics] | None = None

    def take(self, event: TuneEvent) -> None:
        """Tells what happened since the last event; waiting once."""
        fresh, waited = newly_finished(event, self._told), self._waiting
        self._waiting = event.event_type is EventType.WAITING
        if self._last is None or self._last[0].state is not event.state:
            self._last = (event, metrics_at(event, self._last[1] if self._last else None))
        self._last = (event, self._last[1])
        if event.event_type is EventType.BEGUN:
            self._tell(LineType.BEGUN)
            return
        for trial in fresh:
            self._tell(LineType.TRIAL_FINISHED, trial)
        if event.event_type is EventType.STARTED:
            row = next(row for row in event.state.rows if row.number == event.trial)
            self._tell(LineType.TRIAL_STARTED, trial_of(row, event.state.goals))
        if self._waiting and not waited:
            self._tell(LineType.WAITING)

    def end(self, result: TuningResult) -> None:
        """Tells why it ended, and how sure the best is."""
        self.end_as(result.ended or COMPLETE, result.confirmation)

    def end_as(self, why: str, confirmation: Confirmation | None = None) -> None:
        """Tells why it ended, if it had begun."""
        if self._last is not None:
            self._tell(LineType.ENDED, why=why, confirmation=confirmation)

    def _tell(
        self, happened: LineType, trial: StudyTrial | None = None, why: str = "", confirmation: Confirmation | None = None
    ) -> None:
        assert self._last is not None
        event, known = self._last
        render.document_line(line(happened, event, known, self._study, trial, why, confirmation))


@contextmanager
def json_lines(study: str) -> Iterator[JsonLines]:
    """Lines, the last of which is written whatever ends the tuning."""
    lines = JsonLines(study)
    try:
        yield lines
    except KeyboardInterrupt:
        lines.end_as("interrupted")
        raise
    except StrategistError as error:
        lines.end_as(" ".join(str(error).split()))
        raise
