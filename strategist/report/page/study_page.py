"""Report page of a study."""

import shlex
from collections.abc import Iterator

from strategist.contract.report import StudyReport
from strategist.contract.study import StudyStatus
from strategist.report.goals import TITLES, goal_words, objective_text, study_words
from strategist.report.page.frame import Section, document
from strategist.report.page.headline import GOOD, UNSURE, Figure, headline
from strategist.report.page.html import Html, element, join
from strategist.report.page.predicted_vs_measured import measured, median_error, peaks, steps
from strategist.report.page.setting_importance import influence
from strategist.report.page.study_progress import front_figure, objective, progress_figure
from strategist.report.page.tables import pairs
from strategist.report.page.trials import spent, trials
from strategist.report.setting_text import change_words
from strategist.units import show_money

MEASURED = "On the line a prediction is right; the best trial is marked."
INFLUENCE = (
    "How many times longer the step was with the slowest value of a setting than with its fastest, in the mean of their trials. The"
    " share is what the setting explains of the variance of the steps, less what as many values explain by chance; settings that"
    " change together share what they do."
)


def study_page(report: StudyReport) -> str:
    """The whole page."""
    study = report.study
    title = f"{study.request.model} on {study.request.gpus}"
    summary = f"Study {study.study}: {study_words(study)}"
    head = join([element("h1", title), element("p", summary, class_="lead"), _headline(report)])
    return document(f"{title}, a study", head, list(_sections(report)))


def _headline(report: StudyReport) -> Html:
    study, best = report.study, report.study.best_trial
    tiles = [Figure(name="trials", value=str(len(study.trials)), remark=study.kind.value)]
    if best:
        goal = objective(study)
        tiles.insert(0, Figure(name=f"best {TITLES[goal]}", value=objective_text(goal, best), remark=f"trial {best.number}"))
    for name, error_pairs in (("step time", steps(study)), ("peak memory", peaks(study))):
        if error_pairs:
            tiles.append(Figure(name=f"median error, {name}", value=median_error(error_pairs), remark="predicted as proposed"))
    hours = sum(item.device_hours for item in report.spent)
    if hours:
        tiles.append(Figure(name="device hours", value=f"{hours:.3g}"))
    settings = change_words(best.plan) if best else "no trial has ended well yet"
    return headline(study.status.value, GOOD if study.status is StudyStatus.FINISHED else UNSURE, settings, tiles)


def _sections(report: StudyReport) -> Iterator[Section]:
    yield Section(title="In short", introduction="", body=pairs(_summary_rows(report)))
    yield Section(title="Best so far", introduction="", body=progress_figure(report.study))
    if report.study.goals.several:
        yield Section(title="Front", introduction="", body=front_figure(report.study))
    yield Section(title="Predicted and measured", introduction=MEASURED, body=measured(report))
    yield Section(title="Influence", introduction=INFLUENCE, body=influence(report.influences))
    yield Section(title="Trials", introduction="", body=trials(report.study))
    if report.spent:
        yield Section(title="Spent", introduction="", body=spent(report))
    if report.commands:
        code = element("code", "\n".join(map(shlex.join, report.commands)))
        yield Section(title="Reproduce", introduction="", body=element("pre", code))


def _summary_rows(report: StudyReport) -> Iterator[tuple[str, str]]:
    study, workload = report.study, report.study.request.workload
    yield "asked", f"{workload.global_batch:,} x {workload.seq_len:,} tokens a step, {workload.precision}, {workload.optimizer}"
    yield "wanted", goal_words(study.goals)
    if best := study.best_trial:
        yield "best", f"trial {best.number}: {change_words(best.plan)}"
        yield "reached", f"{objective_text(objective(study), best)} ({objective(study)})"
    hours = sum(item.device_hours for item in report.spent)
    price = report.price_per_device_hour
    yield "spent", f"{hours:.3g} device hours" + (f", {show_money(price * hours)}" if price is not None else "")
