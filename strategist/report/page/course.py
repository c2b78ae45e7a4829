"""The best so far against trials, and the front of the first two objectives."""

from collections.abc import Callable, Iterator, Sequence

from strategist.contract.report import StudyReport, TriedPlan
from strategist.report.goals import TITLES, figure, shown
from strategist.report.page.html import Html, element
from strategist.report.page.plot import Mark, Scale, line, plot, scale_of
from strategist.report.words import change_words
from strategist.units import GIB

UNITS: dict[str, tuple[str, float]] = {
    "throughput": ("tokens/s", 1.0), "memory": ("peak memory, GiB", GIB), "cost": ("$ a million tokens", 1.0),
    "energy": ("kWh a million tokens", 3.6e6),
}  # fmt: skip
"""What an axis says of an objective, and its unit."""


def course(report: StudyReport) -> Html:
    """What each trial reached, and the best that was known after it."""
    name = objective(report)
    ran = _known(report.trials, name)
    if not ran:
        return element("p", "No trial has ended well yet.")
    dots = [_dot(trial, report.objectives, trial.number, _place(name, trial)) for trial in ran]
    scale = scale_of(dots, "trial", UNITS[name][0], (lambda number: f"{number:g}", _figure))
    best = next((trial for trial in ran if trial.best), None)
    told = f"; trial {best.number} is the best: {shown(name, best)}" if best else ""
    said = f"{TITLES[name]} of {len(ran)} trials in their order, and the best so far{told}"
    picture = plot(said, scale, dots, under=[line(scale, list(_steps(ran, name, len(report.trials))), "front-line", steps=True)])
    return element("figure", picture, element("figcaption", f"{said[0].upper()}{said[1:]}. Hollow ones miss a constraint."))


def front(report: StudyReport) -> Html:
    """The trials between the first two objectives, and the line of those that no other dominates."""
    first, second = report.objectives[:2]
    ran = [trial for trial in _known(report.trials, first) if figure(second, trial) is not None]
    if not ran:
        return element("p", "No trial has shown both objectives yet.")
    dots = [_dot(trial, report.objectives, _place(first, trial), _place(second, trial)) for trial in ran]
    scale: Scale = scale_of(dots, UNITS[first][0], UNITS[second][0], (_figure, _figure))
    ahead = sorted((_place(first, trial), _place(second, trial)) for trial in ran if trial.front)
    said = f"{TITLES[second]} against {TITLES[first]} of {len(ran)} trials, of which {len(ahead)} are on the front"
    picture = plot(said, scale, dots, under=[line(scale, ahead, "front-line")])
    return element("figure", picture, element("figcaption", f"{said[0].upper()}{said[1:]}: no other is better in every objective."))


def objective(report: StudyReport) -> str:
    """What the study wants most; where that has no figure, as the cost of devices without a price, the throughput."""
    wanted = report.objectives[0]
    return wanted if _known(report.trials, wanted) else "throughput"


def _known(trials: Sequence[TriedPlan], name: str) -> list[TriedPlan]:
    return [trial for trial in trials if figure(name, trial)]


def _place(name: str, trial: TriedPlan) -> float:
    return (figure(name, trial) or 0.0) / UNITS[name][1]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _dot(trial: TriedPlan, objectives: Sequence[str], across: float, up: float) -> Mark:
    told = ", ".join(f"{TITLES[name]} {shown(name, trial)}" for name in objectives)
    missed = f", misses {' and '.join(trial.misses)}" if trial.misses else ""
    look = "large" if trial.misses else "front" if trial.best or trial.front else "fits"
    return Mark(across=across, up=up, text=f"trial {trial.number}: {change_words(trial.plan)}; {told}{missed}", look=look)


def _steps(ran: Sequence[TriedPlan], name: str, trials: int) -> Iterator[tuple[float, float]]:
    """The corners of the best so far; what misses a constraint is never the best."""
    better: Callable[..., float] = max if name == "throughput" else min
    best: float | None = None
    for trial in ran:
        if trial.misses:
            continue
        value = _place(name, trial)
        best = value if best is None else better(best, value)
        yield trial.number, best
    if best is not None:
        yield trials, best
