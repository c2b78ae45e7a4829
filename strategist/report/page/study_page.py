"""Report page of a study."""

import shlex
from collections.abc import Iterator

from strategist.contract.report import StudyReport, TriedPlan
from strategist.report.goals import TITLES, shown
from strategist.report.page.frame import Section, document
from strategist.report.page.headline import GOOD, UNSURE, Figure, headline
from strategist.report.page.html import Html, element, join
from strategist.report.page.predicted_vs_measured import measured, median_error, peaks, steps
from strategist.report.page.setting_importance import influence
from strategist.report.page.study_progress import course, front, objective
from strategist.report.page.tables import pairs
from strategist.report.page.trials import spent, trials
from strategist.report.setting_text import change_words, counted
from strategist.units import show_money

MEASURED = "On the line a prediction is right; the best trial is marked."
INFLUENCE = (
    "How many times longer the step was with the slowest value of a setting than with its fastest, in the mean of their trials. The"
    " share is what the setting explains of the variance of the steps, less what as many values explain by chance; settings that"
    " change together share what they do."
)


def study_page(report: StudyReport) -> str:
    """The whole page."""
    request = report.request
    title = f"{request.model} on {request.gpus}"
    told = f"Study {report.study}: {report.status}, {counted(len(report.trials), f'{report.kind} trial')} for {report.goals}"
    head = join([element("h1", title), element("p", told, class_="lead"), _headline(report)])
    return document(f"{title}, a study", head, list(_sections(report)))


def _headline(report: StudyReport) -> Html:
    best = next((trial for trial in report.trials if trial.best), None)
    found = [Figure(name="trials", value=str(len(report.trials)), remark=report.kind)]
    if best:
        wanted = objective(report)
        found.insert(0, Figure(name=f"best {TITLES[wanted]}", value=shown(wanted, best), remark=f"trial {best.number}"))
    for name, compared in (("step time", steps(report)), ("peak memory", peaks(report))):
        if compared:
            found.append(Figure(name=f"median error, {name}", value=median_error(compared), remark="predicted as proposed"))
    hours = sum(item.device_hours for item in report.spent)
    if hours:
        found.append(Figure(name="device hours", value=f"{hours:.3g}"))
    return headline(report.status, GOOD if report.status == "finished" else UNSURE, _outcome(best), found)


def _outcome(best: TriedPlan | None) -> str:
    return change_words(best.plan) if best else "no trial has ended well yet"


def _sections(report: StudyReport) -> Iterator[Section]:
    yield Section(title="In short", lead="", body=pairs(_short(report)))
    yield Section(title="Best so far", lead="", body=course(report))
    if len(report.objectives) > 1:
        yield Section(title="Front", lead="", body=front(report))
    yield Section(title="Predicted and measured", lead=MEASURED, body=measured(report))
    yield Section(title="Influence", lead=INFLUENCE, body=influence(report.influences))
    yield Section(title="Trials", lead="", body=trials(report))
    if report.spent:
        yield Section(title="Spent", lead="", body=spent(report))
    if report.commands:
        code = element("code", "\n".join(map(shlex.join, report.commands)))
        yield Section(title="Reproduce", lead="", body=element("pre", code))


def _short(report: StudyReport) -> Iterator[tuple[str, str]]:
    workload = report.request.workload
    yield "asked", f"{workload.global_batch:,} x {workload.seq_len:,} tokens a step, {workload.precision}, {workload.optimizer}"
    yield "wanted", report.goals
    if best := next((trial for trial in report.trials if trial.best), None):
        yield "best", f"trial {best.number}: {change_words(best.plan)}"
        yield "reached", f"{shown(objective(report), best)} ({objective(report)})"
    hours = sum(item.device_hours for item in report.spent)
    price = report.price_per_device_hour
    yield "spent", f"{hours:.3g} device hours" + (f", {show_money(price * hours)}" if price is not None else "")
