"""Progress of a tuning: silent, a line per trial on standard error, or JSON lines on standard output.

The live view is :mod:`strategist.cli.tune_view`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from strategist import api
from strategist.api import EventType, TuneEvent, TuningResult
from strategist.cli import render
from strategist.errors import StrategistError
from strategist.report.study import trial_line
from strategist.units import show_seconds

COMPLETE = "as many trials as were asked for are finished"


class ProgressView:
    """Receives events and the result, and prints nothing."""

    def take(self, event: TuneEvent) -> None:
        """Handles an event."""

    def end(self, result: TuningResult) -> None:
        """Handles the result."""


class TrialLines(ProgressView):
    """A line on standard error for each trial that ends, of any tuner."""

    def __init__(self) -> None:
        self._follower = api.TuningFollower()

    def take(self, event: TuneEvent) -> None:
        """Prints trials that ended since the last event."""
        snapshot = self._follower.take(event)
        if event.event_type is EventType.BEGUN or not snapshot.ended:
            return
        best, seconds_left = event.state.best, snapshot.seconds_left
        state = f"{len(event.state.results)} of {event.trials} trials" + (
            f", about {show_seconds(seconds_left)} left" if seconds_left else ""
        )
        for trial in snapshot.ended:
            render.print_note(f"{trial_line(trial, best.number if best else None)}; {state}")


class JsonLines(ProgressView):
    """A JSON line on standard output for each relevant event."""

    def __init__(self, study: str) -> None:
        self.lines = api.TuneLines(study)

    def take(self, event: TuneEvent) -> None:
        """Prints what happened since the last event."""
        render.document_lines(self.lines.take(event))

    def end(self, result: TuningResult) -> None:
        """Prints why the tuning ended, and how certain the best trial is."""
        render.document_lines(self.lines.end(result.ended or COMPLETE, result.confirmation))


@contextmanager
def json_lines(study: str) -> Iterator[JsonLines]:
    """JSON lines; the last one is written however the tuning ends."""
    view = JsonLines(study)
    try:
        yield view
    except (KeyboardInterrupt, StrategistError) as error:
        render.document_lines(view.lines.end(" ".join(str(error).split()) or "interrupted"))
        raise
