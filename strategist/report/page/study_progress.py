"""The best so far against trials, and the front of the first two objectives."""

from collections.abc import Sequence

from strategist.contract.report import StudyReport, TriedPlan
from strategist.report.goals import TITLES, figure, shown
from strategist.report.page.html import Html, element
from strategist.report.page.plot import Mark, Scale, line, over_steps, plot, scale_of
from strategist.report.setting_text import change_words
from strategist.report.study_progress import UNITS, best_so_far, place


def course(report: StudyReport) -> Html:
    """What each trial reached, and the best that was known after it."""
    name = objective(report)
    ran = _known(report.trials, name)
    if not ran:
        return element("p", "No trial has ended well yet.")
    dots = [_dot(trial, report.objectives, trial.number, place(name, trial)) for trial in ran]
    last = max(trial.number for trial in report.trials)
    scale = over_steps(scale_of(dots, "trial", UNITS[name][0], (lambda number: f"{number:g}", _figure)), last)
    best = next((trial for trial in ran if trial.best), None)
    told = f"; trial {best.number} is the best: {shown(name, best)}" if best else ""
    said = f"{TITLES[name]} of {len(ran)} trials in their order, and the best so far{told}"
    missing = " Hollow ones miss a constraint." if any(trial.misses for trial in ran) else ""
    picture = plot(said, scale, dots, under=[line(scale, list(best_so_far(ran, name, len(report.trials))), "front-line")])
    return element("figure", picture, element("figcaption", f"{said[0].upper()}{said[1:]}.{missing}"))


def front(report: StudyReport) -> Html:
    """The trials between the first two objectives, and the line of those that no other dominates."""
    first, second = report.objectives[:2]
    ran = [trial for trial in _known(report.trials, first) if figure(second, trial) is not None]
    if not ran:
        return element("p", "No trial has shown both objectives yet.")
    dots = [_dot(trial, report.objectives, place(first, trial), place(second, trial)) for trial in ran]
    scale: Scale = scale_of(dots, UNITS[first][0], UNITS[second][0], (_figure, _figure))
    ahead = sorted((place(first, trial), place(second, trial)) for trial in ran if trial.front)
    said = f"{TITLES[second]} against {TITLES[first]} of {len(ran)} trials, of which {len(ahead)} are on the front"
    picture = plot(said, scale, dots, under=[line(scale, ahead, "front-line")])
    return element("figure", picture, element("figcaption", f"{said[0].upper()}{said[1:]}: no other is better in every objective."))


def objective(report: StudyReport) -> str:
    """What the study wants most; where that has no figure, as the cost of devices without a price, the throughput."""
    wanted = report.objectives[0]
    return wanted if _known(report.trials, wanted) else "throughput"


def _known(trials: Sequence[TriedPlan], name: str) -> list[TriedPlan]:
    return [trial for trial in trials if figure(name, trial)]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _dot(trial: TriedPlan, objectives: Sequence[str], across: float, up: float) -> Mark:
    told = ", ".join(f"{TITLES[name]} {shown(name, trial)}" for name in objectives)
    missed = f", misses {' and '.join(trial.misses)}" if trial.misses else ""
    look = "large" if trial.misses else "front" if trial.best or trial.front else "fits"
    return Mark(across=across, up=up, text=f"trial {trial.number}: {change_words(trial.plan)}; {told}{missed}", look=look)
