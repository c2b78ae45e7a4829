"""Predicted against measured values: each trial as predicted when proposed, and the errors of the study."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from strategist.contract.report import Learned, StudyReport, TriedPlan
from strategist.report.page.html import Html, element, join
from strategist.report.page.plot import Mark, diagonal, equal_scale, plot
from strategist.report.page.tables import table
from strategist.report.setting_text import change_words, percent
from strategist.units import GIB, show_bytes, show_seconds


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A trial's predicted and measured value, in the unit of the axes and in words."""

    trial: TriedPlan
    predicted: float
    measured: float
    words: str


def measured(report: StudyReport) -> Html:
    """Plots of step time and memory, and errors before and after calibration."""
    pictures = [
        _plot("step time, s", "Step time", steps(report)), _plot("peak memory, GiB", "Peak memory", peaks(report)),
    ]  # fmt: skip
    drawn = element("div", *pictures, class_="pair") if any(pictures) else element("p", "No trial has ended well yet.")
    return join([drawn, _learned(report.learned) if report.learned else Html()])


def steps(report: StudyReport) -> list[Pair]:
    """Step time of each trial that has one."""
    found = []
    for trial in report.trials:
        if trial.measurement and (seconds := trial.measurement.step_seconds):
            expected = trial.plan.estimate.step_seconds
            words = f"{show_seconds(expected)} predicted, {show_seconds(seconds)} measured"
            found.append(Pair(trial=trial, predicted=expected, measured=seconds, words=words))
    return found


def peaks(report: StudyReport) -> list[Pair]:
    """Peak memory of each trial that has one."""
    found = []
    for trial in report.trials:
        if trial.measurement and (size := max(trial.measurement.peak_memory_bytes, default=0)):
            expected = trial.plan.estimate.memory.allocated
            words = f"{show_bytes(expected)} predicted, {show_bytes(size)} measured"
            found.append(Pair(trial=trial, predicted=expected / GIB, measured=size / GIB, words=words))
    return found


def median_error(pairs: Sequence[Pair]) -> str:
    """Median of |predicted / measured - 1|, as text."""
    return percent(median(abs(pair.predicted / pair.measured - 1) for pair in pairs))


def _plot(axis: str, name: str, pairs: list[Pair]) -> Html:
    """A plot with equal axes: perfect predictions lie on the diagonal."""
    if not pairs:
        return Html()
    values = [value for pair in pairs for value in (pair.predicted, pair.measured)]
    scale = equal_scale(values, (f"measured {axis}", f"predicted {axis}"), lambda value: f"{value:.3g}")
    dots = [
        Mark(
            across=pair.measured, up=pair.predicted, look="front" if pair.trial.best else "fits",
            text=f"trial {pair.trial.number}: {change_words(pair.trial.plan)}; {pair.words}",
        )
        for pair in pairs
    ]  # fmt: skip
    said = f"{name}, predicted as it was proposed against measured: {len(pairs)} trials, median error {median_error(pairs)}"
    picture = plot(said, scale, dots, under=[diagonal(scale)])
    return element("figure", picture, element("figcaption", f"{said}."))


def _learned(learned: Learned) -> Html:
    errors = [
        (name, *("-" if error is None else percent(error) for error in (step, learned.memory_errors[name])))
        for name, step in learned.step_errors.items()
    ]
    factors = [(name.replace("_", " "), f"{before:.4g}", f"{after:.4g}") for name, before, after in learned.factors]
    told = table("Median errors, by who predicts", ("", "step time", "peak memory"), errors)
    moved = table("What the calibration learned", ("factor", "was", "is"), factors) if factors else Html()
    return element("div", told, moved, class_="pair")
