"""Best so far against trials, and the Pareto front of the first two objectives."""

from collections.abc import Sequence

from strategist.contract.study import Study, StudyTrial
from strategist.report.goals import TITLES, figure, shown
from strategist.report.page.html import Html, element
from strategist.report.page.plot import Mark, Scale, line, over_steps, plot, scale_of
from strategist.report.setting_text import change_words
from strategist.report.study_progress import UNITS, best_so_far, place
from strategist.search.pareto_front import undominated


def course(study: Study) -> Html:
    """The plot of the best so far, with its caption."""
    missing = " Hollow ones miss a constraint." if any(trial.misses for trial in known(study.trials, objective(study))) else ""
    return _figure(course_plot(study), "No trial has ended well yet.", f".{missing}")


def front(study: Study) -> Html:
    """The plot of the front, with its caption."""
    return _figure(front_plot(study), "No trial has shown both objectives yet.", ": no other is better in every objective.")


def _figure(drawn: tuple[Html, str] | None, without: str, more: str) -> Html:
    if drawn is None:
        return element("p", without)
    picture, said = drawn
    return element("figure", picture, element("figcaption", f"{said[0].upper()}{said[1:]}{more}"))


def course_plot(study: Study) -> tuple[Html, str] | None:
    """Plot of each trial's value and the best so far, and the same in words; None without a successful trial."""
    name = objective(study)
    ran = known(study.trials, name)
    if not ran:
        return None
    dots = [_dot(trial, study, trial.number, place(name, trial)) for trial in ran]
    last = max(trial.number for trial in study.trials)
    scale = over_steps(scale_of(dots, "trial", UNITS[name][0], (lambda number: f"{number:g}", _short)), last)
    best = study.best_trial
    told = f"; trial {best.number} is the best: {shown(name, best)}" if best else ""
    said = f"{TITLES[name]} of {len(ran)} trials in their order, and the best so far{told}"
    best_line = line(scale, list(best_so_far(ran, name, len(study.trials))), "front-line")
    return plot(said, scale, dots, under=[best_line]), said


def front_plot(study: Study) -> tuple[Html, str] | None:
    """Plot of trials over the first two objectives with their front, and the same in words; None if no trial has both values."""
    first, second = study.goals.objectives[:2]
    ran = [trial for trial in known(study.trials, first) if figure(second, trial) is not None]
    if not ran:
        return None
    dots = [_dot(trial, study, place(first, trial), place(second, trial)) for trial in ran]
    scale: Scale = scale_of(dots, UNITS[first][0], UNITS[second][0], (_short, _short))
    ahead = [(place(first, trial), place(second, trial)) for trial in ran if trial.front]
    signs = [-1 if name == "throughput" else 1 for name in (first, second)]
    best = undominated([[sign * value for sign, value in zip(signs, values, strict=True)] for values in ahead])
    said = f"{TITLES[second]} against {TITLES[first]} of {len(ran)} trials, of which {len(ahead)} are on the front"
    return plot(said, scale, dots, under=[line(scale, sorted(ahead[number] for number in best), "front-line")]), said


def objective(study: Study) -> str:
    """The first objective of the study; throughput if it has no figures (cost on devices without a price)."""
    wanted = study.goals.objectives[0]
    return wanted if known(study.trials, wanted) else "throughput"


def known(trials: Sequence[StudyTrial], name: str) -> list[StudyTrial]:
    """Trials with a value of an objective."""
    return [trial for trial in trials if figure(name, trial)]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _dot(trial: StudyTrial, study: Study, across: float, up: float) -> Mark:
    told = ", ".join(f"{TITLES[name]} {shown(name, trial)}" for name in study.goals.objectives)
    missed = f", misses {' and '.join(trial.misses)}" if trial.misses else ""
    look = "large" if trial.misses else "front" if trial.front or trial.number == study.best else "fits"
    return Mark(across=across, up=up, text=f"trial {trial.number}: {change_words(trial.plan)}; {told}{missed}", look=look)
