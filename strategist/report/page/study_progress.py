"""Best so far against trials, and the Pareto front of the first two objectives."""

from collections.abc import Sequence

from strategist.contract.study import Study, StudyTrial
from strategist.report.goals import TITLES, figure, objective_text
from strategist.report.page.html import Html, element
from strategist.report.page.plot import Mark, Scale, line, over_steps, plot, scale_of
from strategist.report.setting_text import change_words
from strategist.report.study_progress import UNITS, best_so_far, plotted_value
from strategist.search.pareto_front import undominated


def progress_figure(study: Study) -> Html:
    """The plot of the best so far, with its caption."""
    missing = (
        " Hollow ones miss a constraint."
        if any(trial.misses for trial in trials_with_value(study.trials, objective(study)))
        else ""
    )
    return _figure(progress_plot(study), "No trial has ended well yet.", f".{missing}")


def front_figure(study: Study) -> Html:
    """The plot of the front, with its caption."""
    return _figure(front_plot(study), "No trial has shown both objectives yet.", ": no other is better in every objective.")


def _figure(plot_and_caption: tuple[Html, str] | None, empty_text: str, suffix: str) -> Html:
    if plot_and_caption is None:
        return element("p", empty_text)
    picture, caption = plot_and_caption
    return element("figure", picture, element("figcaption", f"{caption[0].upper()}{caption[1:]}{suffix}"))


def progress_plot(study: Study) -> tuple[Html, str] | None:
    """Plot of each trial's value and the best so far, and the same in words; None without a successful trial."""
    name = objective(study)
    measured_trials = trials_with_value(study.trials, name)
    if not measured_trials:
        return None
    dots = [_dot(trial, study, trial.number, plotted_value(name, trial)) for trial in measured_trials]
    last = max(trial.number for trial in study.trials)
    scale = over_steps(scale_of(dots, "trial", UNITS[name][0], (lambda number: f"{number:g}", _short_number)), last)
    best = study.best_trial
    best_words = f"; trial {best.number} is the best: {objective_text(name, best)}" if best else ""
    caption = f"{TITLES[name]} of {len(measured_trials)} trials in their order, and the best so far{best_words}"
    best_line = line(scale, list(best_so_far(measured_trials, name, len(study.trials))), "front-line")
    return plot(caption, scale, dots, under=[best_line]), caption


def front_plot(study: Study) -> tuple[Html, str] | None:
    """Plot of trials over the first two objectives with their front, and the same in words; None if no trial has both values."""
    first, second = study.goals.objectives[:2]
    measured_trials = [trial for trial in trials_with_value(study.trials, first) if figure(second, trial) is not None]
    if not measured_trials:
        return None
    dots = [_dot(trial, study, plotted_value(first, trial), plotted_value(second, trial)) for trial in measured_trials]
    scale: Scale = scale_of(dots, UNITS[first][0], UNITS[second][0], (_short_number, _short_number))
    front_points = [(plotted_value(first, trial), plotted_value(second, trial)) for trial in measured_trials if trial.front]
    signs = [-1 if name == "throughput" else 1 for name in (first, second)]
    best = undominated([[sign * value for sign, value in zip(signs, values, strict=True)] for values in front_points])
    caption = (
        f"{TITLES[second]} against {TITLES[first]} of {len(measured_trials)} trials, of which {len(front_points)} are on the front"
    )
    return plot(caption, scale, dots, under=[line(scale, sorted(front_points[number] for number in best), "front-line")]), caption


def objective(study: Study) -> str:
    """The first objective of the study; throughput if it has no figures (cost on devices without a price)."""
    goal = study.goals.objectives[0]
    return goal if trials_with_value(study.trials, goal) else "throughput"


def trials_with_value(trials: Sequence[StudyTrial], name: str) -> list[StudyTrial]:
    """Trials with a value of an objective."""
    return [trial for trial in trials if figure(name, trial)]


def _short_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _dot(trial: StudyTrial, study: Study, x: float, y: float) -> Mark:
    figures = ", ".join(f"{TITLES[name]} {objective_text(name, trial)}" for name in study.goals.objectives)
    missed = f", misses {' and '.join(trial.misses)}" if trial.misses else ""
    css_class = "large" if trial.misses else "front" if trial.front or trial.number == study.best else "fits"
    return Mark(x=x, y=y, text=f"trial {trial.number}: {change_words(trial.plan)}; {figures}{missed}", css_class=css_class)
