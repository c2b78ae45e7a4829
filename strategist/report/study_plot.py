"""A study as a plot."""

from collections.abc import Sequence

from strategist.contract.study import Study, StudyTrial
from strategist.errors import InputError
from strategist.report.goals import figure, shown
from strategist.report.setting_text import change_words
from strategist.report.study_progress import UNITS, best_so_far, place
from strategist.report.trial_plot import Dot, plane
from strategist.search.pareto_front import undominated


def study_plot(study: Study) -> str:
    """The front of the first two objectives, or the best so far against trials, as an SVG file.

    Raises:
        InputError: no trial ran well.
    """
    objectives = study.goals.objectives[:2]
    if not study.goals.several and not _known(study, objectives):
        objectives = ("throughput",)  # tokens per dollar, where the price of a device is not known
    ran = _known(study, objectives)
    if not ran:
        raise InputError(f"study {study.study}", "holds no trial that ran well", "plot it when there is one")
    return _front(study, ran, *objectives) if study.goals.several else _course(study, ran, *objectives)


def _known(study: Study, objectives: Sequence[str]) -> list[StudyTrial]:
    """The trials that showed all of these objectives."""
    return [trial for trial in study.trials if all(figure(name, trial) is not None for name in objectives)]


def _front(study: Study, ran: Sequence[StudyTrial], first: str, second: str) -> str:
    places = {trial.number: (place(first, trial), place(second, trial)) for trial in ran}
    dots = [_dot(study, trial, *places[trial.number]) for trial in ran]
    ahead = [trial for trial in ran if trial.front]
    spent = [values[:2] for trial in ahead if trial.measurement and (values := study.goals.measured(trial.plan, trial.measurement))]
    line = sorted(places[ahead[place].number] for place in undominated(spent))  # by a third objective others may be ahead
    return plane(dots, line, f"The front of {first} and {second}", UNITS[first][0], UNITS[second][0])


def _course(study: Study, ran: Sequence[StudyTrial], objective: str) -> str:
    dots = [_dot(study, trial, trial.number, place(objective, trial)) for trial in ran]
    line = list(best_so_far(ran, objective, len(study.trials)))
    return plane(dots, line, "The best so far against trials", "trials", UNITS[objective][0])


def _dot(study: Study, trial: StudyTrial, across: float, up: float) -> Dot:
    told = ", ".join(f"{UNITS[name][0]}: {shown(name, trial)}" for name in study.goals.objectives)
    missed = f", misses {' and '.join(trial.misses)}" if trial.misses else ""
    text = f"trial {trial.number}: {change_words(trial.plan)}; {told}{missed}"
    return Dot(across=across, up=up, text=text, ahead=trial.front or trial.number == study.best)
