"""Tuning follower: snapshots of a tuning from its events, for listeners."""

from strategist.contract.study import StudyTrial, TrialState
from strategist.frozen import frozen
from strategist.tuner.event import TuneEvent
from strategist.tuner.finalists import front
from strategist.tuner.study import trial_of
from strategist.tuner.study_metrics import StudyMetrics, metrics_at, seconds_left


@frozen
class TuningSnapshot:
    """A tuning at an event.

    metrics: metrics of the study.
    running: running trials of all tuners.
    ended: trials that ended since the last event, in the order in which they ended.
    """

    event: TuneEvent
    metrics: StudyMetrics
    running: tuple[StudyTrial, ...]
    ended: tuple[StudyTrial, ...]

    @property
    def event_trial(self) -> StudyTrial | None:
        """The trial that the tuner itself runs."""
        return next((trial for trial in self.running if trial.number == self.event.trial), None)

    @property
    def front(self) -> tuple[int, ...]:
        """Numbers of the trials on the Pareto front."""
        return front(self.event.state.finalists, self.event.state.goals)

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the tuning ends; None before a trial has ended."""
        return seconds_left(self.event)


class TuningFollower:
    """Makes a snapshot of each event; results of the last snapshot are not computed again."""

    def __init__(self) -> None:
        self._last: TuningSnapshot | None = None
        self._reported: set[int] = set()

    def take(self, event: TuneEvent) -> TuningSnapshot:
        """The snapshot of the tuning at this event."""
        last, state = self._last, event.state
        if last is not None and last.event.state is state:
            metrics, running = last.metrics, last.running
        else:
            metrics = metrics_at(event, last.metrics if last else None)
            running = tuple(trial_of(row, state.goals) for row in state.rows if row.state is TrialState.RUNNING)
        rows = [row for row in state.rows if row.number in state.results and row.number not in self._reported]
        self._reported.update(row.number for row in rows)
        ended = sorted((trial_of(row, state.goals) for row in rows), key=lambda trial: trial.ended or 0.0)
        self._last = TuningSnapshot(event=event, metrics=metrics, running=running, ended=tuple(ended))
        return self._last
