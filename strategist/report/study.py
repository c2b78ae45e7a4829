"""Reports of studies."""

import shlex
from collections.abc import Collection, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from strategist.contract.measurement import Kind, Outcome
from strategist.contract.study import Study, StudySummary, StudyTrial
from strategist.report.goals import FRONT_TRIALS, MARKS, goal_words, goals_report, outcome_words
from strategist.report.setting_text import change_words
from strategist.report.text_blocks import columns, commands, heading, section, selected_blocks
from strategist.report.trial_table import best_line, cell_words, cells, fastest_trials, trials_table
from strategist.units import show_seconds


def studies_report(summaries: Sequence[StudySummary]) -> Group:
    """A line per study; unreadable ones follow with the reason."""
    table = columns(
        "study", "model", "gpus", "trials", "status", "best", "step", "tok/s", "peak", wrap=["study"], left=["model", "gpus"]
    )
    for item in summaries:
        if not item.problem:
            trials = str(item.trials) if item.finished == item.trials else f"{item.finished} of {item.trials}"
            status = item.status.value if item.status else "-"
            table.add_row(item.study, item.model, item.gpus, trials, status, *_best(item))
    problems = [Text(f"{item.study}: {item.problem}") for item in summaries if item.problem]
    return Group(table, *([section(heading("Cannot be read"), *problems)] if problems else []))


def _best(item: StudySummary) -> tuple[str, str, str, str]:
    figures = cell_words(item.best_step_seconds, item.best_tokens_per_second, item.best_peak_memory_bytes)
    return str(item.best or "-"), *figures


def study_report(study: Study, sections: Collection[str] = ()) -> Group:
    """Best trial, request, fastest trials and next commands; or only the named ``sections``."""
    rest = selected_blocks(SECTIONS, sections, study) if sections else _screen(study)
    return Group(best_line(study.best_trial, study.finished), *_study_lines(study), *rest)


def _screen(study: Study) -> Iterator[RenderableType]:
    yield from fastest_trials(study.trials, study.best)
    yield from _front(study, FRONT_TRIALS)
    study_path = shlex.quote(study.study)
    lines = [f"strategist study show {study_path} --explain", f"strategist report {study_path} -o study.html"]
    if study.calibration:
        lines.insert(0, f"strategist run {study_path}/best-plan.json")
    yield commands(heading("Next"), *lines)


def _study_lines(study: Study) -> Iterator[RenderableType]:
    request = study.request
    finished, count = len(study.finished), len(study.trials)
    kind = "" if study.kind is Kind.REAL else f"{study.kind.value} "
    progress = f"{count} {kind}trials" if finished == count else f"{finished} of {count} {kind}trials finished"
    yield Text(f"study {study.study}: {study.status.value}, {progress}")
    yield Text(
        f"{request.model} on {request.gpus}, sequences of {request.workload.seq_len}, "
        f"global batch {request.workload.global_batch}, for {goal_words(study.goals)}"
    )
    for other in study.warmed_by:
        yield Text(f"warmed by {other.trials} trials of {other.model} on {other.gpus}: {other.study}")


def _trials(study: Study) -> Iterator[RenderableType]:
    marks = MARKS if study.front else "* is the best"
    yield section(
        heading("Trials", f"expected as it was proposed, and measured; {marks}"),
        trials_table(study.trials, study.best, study.front, _end),
    )


def _front(study: Study, max_trials: int | None = None) -> Iterator[RenderableType]:
    yield from goals_report(study.goals, study.trials, study.front, study.nearest, max_trials)


SECTIONS = {"trials": _trials, "front": _front}
"""Function of each section of a study's report."""


def _end(trial: StudyTrial) -> str:
    return outcome_words(trial.end, trial.misses)


def trial_line(trial: StudyTrial, best: int | None) -> str:
    """A finished trial on one line, compared with the trial number ``best``."""
    step, speed, peak = cells(trial.measurement)
    figures = f"step {step} (predicted {show_seconds(trial.plan.estimate.step_seconds)}), {speed} tokens/s, peak {peak}"
    if trial.outcome is not Outcome.OK:
        message = trial.measurement.evidence.message if trial.measurement else ""
        figures = " ".join(message.split()) or "no message was left"
    rank = "; the best so far" if trial.number == best else "; on the front so far" if trial.front else ""
    return f"trial {trial.number} {_end(trial)}: {figures}; {change_words(trial.plan)}; by {trial.proposed_by or 'unknown'}{rank}"
