"""Live view of a study that other processes tune: running trials, the best so far, prediction errors, the latest trials."""

import statistics
import time
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from strategist.contract.measurement import RAN, Kind
from strategist.contract.study import Study, StudyTrial, TrialState
from strategist.report.goals import goal_words
from strategist.report.setting_text import change_words, percent
from strategist.report.text_blocks import bar, heading, pairs
from strategist.report.trial_table import figures, latest_trials, truncate
from strategist.units import show_money, show_seconds

RUNNING_TRIALS = 4
"""Number of running trials shown."""


class StudyView:
    """Shows the latest state of a study. It can be drawn at any time: each update replaces the whole view atomically."""

    def __init__(self) -> None:
        self._study: Study | None = None

    def take(self, study: Study, finished: tuple[StudyTrial, ...]) -> None:
        """Shows this state."""
        self._study = study

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if (study := self._study) is None:
            return
        header = Group(_title(study), "", *_running(study), "", pairs(_facts(study)), "")
        header_lines = len(console.render_lines(header, options.update(height=None), pad=False))
        yield header
        yield from latest_trials(study.finished, study.best, options, header_lines)


def _title(study: Study) -> Text:
    request_text = f"{study.request.model} on {study.request.gpus}, for {goal_words(study.goals)}"
    return Text.assemble((request_text, "bold"), f"  {study.study}", no_wrap=True, overflow="ellipsis")


def _running(study: Study) -> Iterator[RenderableType]:
    running = [trial for trial in study.trials if trial.state == TrialState.RUNNING]
    if not running:
        yield heading("Nothing runs", study.status.value)
    for trial in running[:RUNNING_TRIALS]:
        since = f"for {show_seconds(max(time.time() - trial.started, 0.0))}, " if trial.started else ""
        yield heading(f"Trial {trial.number}", f"{since}by {trial.owner}")
        yield truncate(f"  predicted {show_seconds(trial.plan.estimate.step_seconds)}: {change_words(trial.plan)}")
    if len(running) > RUNNING_TRIALS:
        yield truncate(f"and {len(running) - RUNNING_TRIALS} more")


def _facts(study: Study) -> Iterator[tuple[str, RenderableType]]:
    best = study.best_trial
    if best is None or best.measurement is None:
        yield "best", Text("no trial ended well yet")
    else:
        yield "best", Text(f"trial {best.number}: {', '.join(figures(best.measurement))}")
    if study.front:
        yield "front", truncate(f"trials {', '.join(map(str, study.front))}, which no other dominates")
    if errors := [*_errors(study)]:
        yield "predictions", Text(f"off by {percent(statistics.median(errors))} in the median, as they were proposed")
    finished = len(study.finished)
    yield (
        "done",
        Text.assemble(bar(finished / len(study.trials) if study.trials else 0.0), f" {finished} of {len(study.trials)} proposed"),
    )
    if spending := ", ".join(_spent(study)):
        yield "spent", Text(spending)


def _errors(study: Study) -> Iterator[float]:
    """Errors of predicted step times of trials that ran."""
    for trial in study.finished:
        measurement = trial.measurement
        if measurement is not None and measurement.outcome in RAN and measurement.step_seconds:
            yield abs(trial.plan.estimate.step_seconds / measurement.step_seconds - 1)


def _spent(study: Study) -> Iterator[str]:
    """Time of the last attempts of finished trials."""
    durations = [(trial.ended - trial.started, trial.plan.cluster) for trial in study.finished if trial.started and trial.ended]
    if not durations:
        return
    yield f"{sum(seconds * cluster.devices for seconds, cluster in durations) / 3600:.3g} device hours"
    prices = [cluster.device.price_per_hour for _, cluster in durations]
    if study.kind is not Kind.SHADOW and all(price is not None for price in prices):
        yield show_money(
            sum(seconds * cluster.devices * (cluster.device.price_per_hour or 0) for seconds, cluster in durations) / 3600
        )
