"""Live view of a tuning for terminals: the running trial, the best so far, prediction errors, the latest trials."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from strategist import api
from strategist.api import EventType, StudyMetrics, TuneEvent, TuningSnapshot
from strategist.cli.tuning_progress import ProgressView
from strategist.report.goals import goal_words
from strategist.report.setting_text import change_words, percent
from strategist.report.text_blocks import bar, heading, pairs
from strategist.report.trial_table import figures, latest_trials, outcome, proposer, truncate
from strategist.report.tuning import factor_changes
from strategist.units import show_money, show_seconds

RECENT_TRIALS = 6
"""Number of latest predictions shown with their errors."""

OTHER_TUNERS_TRIALS = 2
"""Number of running trials of other tuners shown."""

MIN_GAIN = 0.001
"""Smallest expected gain shown as a figure."""


class TuningView(ProgressView):
    """Shows the latest event. It can be drawn at any time: each event replaces the whole view atomically."""

    def __init__(self, study: str) -> None:
        self._study = study
        self._follower = api.TuningFollower()
        self._shown: TuningSnapshot | None = None

    def take(self, event: TuneEvent) -> None:
        """Shows this event."""
        self._shown = self._follower.take(event)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if (snapshot := self._shown) is None:
            return
        header = Group(_title(snapshot.event, self._study), "", *_running(snapshot), "", pairs(_facts(snapshot)), "")
        header_lines = len(console.render_lines(header, options.update(height=None), pad=False))
        yield header
        results, best = snapshot.event.state.results, snapshot.metrics.best
        yield from latest_trials(
            [results[number] for number in sorted(results)], best.number if best else None, options, header_lines
        )


def _title(event: TuneEvent, study: str) -> Text:
    request = event.state.situation.request
    request_text = f"{request.model} on {request.gpus}, for {goal_words(event.state.goals)}"
    return Text.assemble((request_text, "bold"), f"  {study}", no_wrap=True, overflow="ellipsis")


def _running(snapshot: TuningSnapshot) -> Iterator[RenderableType]:
    event, event_trial = snapshot.event, snapshot.event_trial
    if event_trial is not None:
        yield heading(f"Trial {event_trial.number} of {event.trials}", ", ".join(_progress(event)))
        predicted, proposed_by = show_seconds(event_trial.plan.estimate.step_seconds), proposer(event_trial.proposed_by)
        yield Padding(truncate(f"predicted {predicted}, by {proposed_by}: {change_words(event_trial.plan)}"), (0, 0, 0, 2))
    elif event.event_type is EventType.WAITING:
        yield heading("Waiting", "for trials of other tuners")
    else:
        yield heading("Choosing what to try next" if event.event_type is not EventType.OVER else "Drawing conclusions")
    other_trials = [trial for trial in snapshot.running if trial is not event_trial]
    for trial in other_trials[:OTHER_TUNERS_TRIALS]:
        yield truncate(f"Trial {trial.number}, of another tuner: {change_words(trial.plan)}")
    if len(other_trials) > OTHER_TUNERS_TRIALS:
        yield truncate(f"and {len(other_trials) - OTHER_TUNERS_TRIALS} more of other tuners")


def _progress(event: TuneEvent) -> Iterator[str]:
    if (progress := event.progress) is None:
        yield "starting"
        return
    yield progress.phase
    if progress.step is not None:
        yield f"step {progress.step}"
    if progress.step_seconds:
        yield f"{show_seconds(progress.step_seconds[-1])} a step"
    yield f"for {progress.elapsed_seconds:.0f} s"


def _facts(snapshot: TuningSnapshot) -> Iterator[tuple[str, RenderableType]]:
    event, metrics = snapshot.event, snapshot.metrics
    yield "best", _best(metrics)
    if front := snapshot.front:
        yield "front", truncate(f"trials {', '.join(map(str, front))}, which no other dominates")
    if metrics.step_errors:
        yield "predictions", _predictions(metrics)
    if changes := [f"{name} {change}" for name, change in factor_changes(event.prior, event.state.calibration)]:
        yield "learned", truncate(", ".join(changes))
    if event.expected_gain is not None:
        yield "expected", Text(f"the search hopes to gain {_gain(event.expected_gain)} with its next trial")
    yield "done", _done(snapshot)
    if spending := ", ".join(_spent(snapshot)):
        yield "spent", Text(spending)


def _best(metrics: StudyMetrics) -> Text:
    best, first = metrics.best, metrics.first
    if best is None or best.measurement is None:
        return Text("no trial ended well yet")
    best_text = f"trial {best.number}: {', '.join(figures(best.measurement))}"
    if first is None:
        return Text(best_text)
    if metrics.ahead_of_first is None:
        return Text(f"{best_text}; the cost model's first choice, trial {first.number}: {outcome(first)}")
    if first.plan.candidate == best.plan.candidate:
        return Text(f"{best_text}; the cost model's first choice")
    return Text(f"{best_text}; {percent(metrics.ahead_of_first)} ahead of trial {first.number}, the cost model's first choice")


def _predictions(metrics: StudyMetrics) -> Text:
    if metrics.unlearned_error is None or metrics.proposed_error is None:
        return Text("")
    latest_trials = " ".join(percent(error.proposed) for error in metrics.step_errors[-RECENT_TRIALS:])
    errors = f"off by {percent(metrics.proposed_error)} in the median, {percent(metrics.unlearned_error)} without what was learned"
    return Text(f"{errors}; latest {latest_trials}")


def _gain(share: float) -> str:
    return percent(share) if share >= MIN_GAIN else f"less than {percent(MIN_GAIN)}"


def _done(snapshot: TuningSnapshot) -> Text:
    event, seconds_left = snapshot.event, snapshot.seconds_left
    finished = len(event.state.results)
    remaining = f", about {show_seconds(seconds_left)} left" if seconds_left else ""
    share = finished / event.trials if event.trials else 0.0
    return Text.assemble(bar(share), f" {finished} of {event.trials} trials{remaining}")


def _spent(snapshot: TuningSnapshot) -> Iterator[str]:
    limits, metrics = snapshot.event.limits, snapshot.metrics
    if limits.minutes is not None:
        yield f"{limits.minutes_passed:.0f} of {limits.minutes:g} minutes"
    limit_text = "" if limits.device_hours is None else f" of {limits.device_hours:g}"
    if metrics.device_hours:
        yield f"{metrics.device_hours:.3g}{limit_text} device hours"
    if metrics.price_dollars:
        yield show_money(metrics.price_dollars)
