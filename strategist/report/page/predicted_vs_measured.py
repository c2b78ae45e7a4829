"""Predicted against measured values: each trial as predicted when proposed, and the errors of the study."""

from collections.abc import Callable, Sequence
from statistics import median

from strategist.contract.estimate import Estimate
from strategist.contract.goals import peak_bytes
from strategist.contract.measurement import Measurement
from strategist.contract.report import Learned, StudyReport
from strategist.contract.study import Study, StudyTrial
from strategist.frozen import frozen
from strategist.report.page.html import Html, element, join
from strategist.report.page.plot import Mark, diagonal, equal_scale, plot
from strategist.report.page.tables import table
from strategist.report.setting_text import change_words, percent
from strategist.units import GIB, show_bytes, show_seconds


@frozen
class Pair:
    """A trial's predicted and measured value, in the unit of the axes and in words."""

    trial: StudyTrial
    predicted: float
    measured: float
    words: str


def measured(report: StudyReport) -> Html:
    """Plots of step time and memory, and errors before and after calibration."""
    pictures = [
        _plot(report.study, "step time, s", "Step time", steps), _plot(report.study, "peak memory, GiB", "Peak memory", peaks),
    ]  # fmt: skip
    plots = element("div", *pictures, class_="pair") if any(pictures) else element("p", "No trial has ended well yet.")
    return join([plots, _calibration_tables(report.learned) if report.learned else Html()])


def steps(study: Study) -> list[Pair]:
    """Step time of each trial that has one."""
    return _pairs(study, lambda plan: plan.step_seconds, lambda found: found.step_seconds, 1.0, show_seconds)


def peaks(study: Study) -> list[Pair]:
    """Peak memory of each trial that has one."""
    return _pairs(study, lambda plan: plan.memory.allocated, lambda found: peak_bytes(found), GIB, show_bytes)


def _pairs(
    study: Study,
    predicted: Callable[[Estimate], float],
    measured: Callable[[Measurement], float | None],
    unit: float,
    show: Callable[[float], str],
) -> list[Pair]:
    found = []
    for trial in study.trials:
        if trial.measurement and (value := measured(trial.measurement)):
            expected = predicted(trial.plan.estimate)
            words = f"{show(expected)} predicted, {show(value)} measured"
            found.append(Pair(trial=trial, predicted=expected / unit, measured=value / unit, words=words))
    return found


def median_error(pairs: Sequence[Pair]) -> str:
    """Median of |predicted / measured - 1|, as text."""
    return percent(median(abs(pair.predicted / pair.measured - 1) for pair in pairs))


def _plot(study: Study, axis: str, name: str, pairs_of: Callable[[Study], list[Pair]]) -> Html:
    """A plot with equal axes: perfect predictions lie on the diagonal."""
    if not (pairs := pairs_of(study)):
        return Html()
    values = [value for pair in pairs for value in (pair.predicted, pair.measured)]
    scale = equal_scale(values, (f"measured {axis}", f"predicted {axis}"), lambda value: f"{value:.3g}")
    dots = [
        Mark(
            x=pair.measured, y=pair.predicted, css_class="front" if pair.trial.number == study.best else "fits",
            text=f"trial {pair.trial.number}: {change_words(pair.trial.plan)}; {pair.words}",
        )
        for pair in pairs
    ]  # fmt: skip
    caption = f"{name}, predicted as it was proposed against measured: {len(pairs)} trials, median error {median_error(pairs)}"
    picture = plot(caption, scale, dots, under=[diagonal(scale)])
    return element("figure", picture, element("figcaption", f"{caption}."))


def _calibration_tables(learned: Learned) -> Html:
    errors = [
        (name, *("-" if error is None else percent(error) for error in (step, learned.memory_errors[name])))
        for name, step in learned.step_errors.items()
    ]
    factors = [(name.replace("_", " "), f"{before:.4g}", f"{after:.4g}") for name, before, after in learned.factors]
    errors_table = table("Median errors by predictor", ("", "step time", "peak memory"), errors)
    factors_table = table("What the calibration learned", ("factor", "was", "is"), factors) if factors else Html()
    return element("div", errors_table, factors_table, class_="pair")
