"""Trials of a study: predictions, measurements and durations."""

from strategist.contract.measurement import RAN
from strategist.contract.report import StudyReport
from strategist.contract.study import Study, StudyTrial
from strategist.report.goals import marked_number, outcome_words
from strategist.report.page.filters import filter_attributes, filters, values_of
from strategist.report.page.html import Html, element, join
from strategist.report.page.tables import table
from strategist.report.setting_text import change_words, tokens
from strategist.report.trial_table import proposer
from strategist.units import show_bytes, show_money, show_seconds

ID = "trials-table"
HEAD = ("#", "settings", "by", "outcome", "expected", "step", "expected peak", "peak", "tokens/s", "message")


def trials(study: Study) -> Html:
    """A line per trial, with filters by outcome, proposer, recomputation and offload."""
    if not study.trials:
        return element("p", "There are none yet.")
    fields = [_fields(trial) for trial in study.trials]
    rows = [_row(trial, study) for trial in study.trials]
    column_count = len(HEAD) if any(row[-1] for row in rows) else len(HEAD) - 1
    grid = table(
        "Trials: * is the best, + is on the Pareto front", HEAD[:column_count], (row[:column_count] for row in rows),
        words=(0, 1, 2, 3, 9), marks=[filter_attributes(values) for values in fields], id_=ID,
    )  # fmt: skip
    return join([filters(ID, values_of(fields), "trials"), grid])


def spent(report: StudyReport) -> Html:
    """Time of attempts by outcome."""
    price, hours = report.price_per_device_hour, sum(item.device_hours for item in report.spent)
    attempts = sum(item.attempts for item in report.spent)
    lines = [*((item.ended, item.attempts, item.device_hours) for item in report.spent), ("all", attempts, hours)]
    rows = [
        (name, str(count), f"{hours_of:.3g}", "-" if price is None else show_money(price * hours_of))
        for name, count, hours_of in lines
    ]
    return table("Attempts by how they ended", ("", "attempts", "device hours", "price"), rows)


def _fields(trial: StudyTrial) -> dict[str, str]:
    knobs = trial.plan.candidate.knobs
    proposed_by = trial.proposed_by.partition(":")[0] or "none"
    return {"outcome": trial.end, "by": proposed_by, "recompute": knobs.recompute, "offload": knobs.offload}


def _row(trial: StudyTrial, study: Study) -> tuple[str, ...]:
    estimate, measured = trial.plan.estimate, trial.measurement
    completed = measured if measured and measured.outcome in RAN else None
    step, peak = completed and completed.step_seconds, max(completed.peak_memory_bytes, default=0) if completed else 0
    return (
        marked_number(trial.number, study.best, study.front),
        change_words(trial.plan), proposer(trial.proposed_by),
        outcome_words(trial.end, trial.misses),
        show_seconds(estimate.step_seconds), show_seconds(step) if step else "-", show_bytes(estimate.memory.allocated),
        show_bytes(peak) if peak else "-",
        tokens(completed.tokens_per_second) if completed and completed.tokens_per_second else "-",
        " ".join(measured.evidence.message.split()) if measured and completed is None else "",
    )  # fmt: skip
