"""Report of a finished tuning."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.evidence import PolicyEvidence
from strategist.contract.goals import Goals
from strategist.contract.measurement import GLOO_NOTE, Outcome
from strategist.contract.study import TrialResult
from strategist.cost.calibration import Calibration
from strategist.report.command import plan_command
from strategist.report.goals import FRONT_TRIALS, MARKS, goals_report, outcome_words
from strategist.report.plan import plan_report
from strategist.report.setting_text import percent
from strategist.report.text_blocks import bullets, columns, commands, heading, pairs, section, selected_blocks
from strategist.report.trial import comparison
from strategist.report.trial_table import best_line, fastest_trials, trials_table
from strategist.search.tuning_result import Confirmation, CrashCause, Errors, TuningResult
from strategist.units import show_seconds


def tuning_report(result: TuningResult, sections: Collection[str] = ()) -> Group:
    """Best trial, its certainty, predicted against measured and next commands; or only the named ``sections``."""
    return Group(*_head(result), *(selected_blocks(SECTIONS, sections, result) if sections else _screen(result)))


def _screen(result: TuningResult) -> Iterator[RenderableType]:
    best = result.best
    yield from fastest_trials(result.trials, best.number if best else None)
    yield from _front(result, FRONT_TRIALS)
    yield from selected_blocks(SECTIONS, ("measured", "crashes"), result)
    yield section(heading("Calibration"), _errors(result))
    if result.warnings:
        cards = ", ".join(dict.fromkeys(reason.card for reason in result.warnings))
        yield Text(f"\nWarnings of cards (--show warnings): {cards}")
    yield _next(result)


def _next(result: TuningResult) -> Group:
    study = shlex.quote(result.study)
    title = heading("Next", "the same command with --explain prints all details")
    if result.best is None:
        return commands(title, f"strategist study show {study} --explain")
    calibrated = shlex.join((*plan_command(result.request), "--calibration", f"{result.study}/calibration.json"))
    return commands(title, f"strategist run {study}/best-plan.json", calibrated, f"strategist report {study} -o study.html")


def _head(result: TuningResult) -> Iterator[RenderableType]:
    simulated = sum(trial.simulated for trial in result.trials)
    finished = f"{len(result.trials) - simulated} trials"
    finished += f", {simulated} plans shown too large by simulation, so not run" if simulated else ""
    finished += f"; {result.ended}" if result.ended else ""
    yield best_line(result.best, result.trials)
    if result.confirmation is not None:
        yield Text(f"How sure: {confirmation_words(result.confirmation)}.")
    yield Text(f"study {result.study}: {finished}")
    if result.best is None and result.nearest is None:
        yield Text("No trial ended well; its folder under trials/ has the log and measurement.json of each.")


def _trials(result: TuningResult) -> Iterator[RenderableType]:
    best = result.best.number if result.best else None
    table = trials_table(result.trials, best, result.front, lambda trial: _outcome(trial, result.goals))
    yield section(heading("Trials", MARKS if result.front else ""), table)


def _front(result: TuningResult, max_trials: int | None = None) -> Iterator[RenderableType]:
    yield from goals_report(result.goals, result.trials, result.front, result.nearest, max_trials)


def _plan(result: TuningResult) -> Iterator[RenderableType]:
    if result.best:
        yield plan_report(result.best.plan, f"The best plan (trial {result.best.number})")


def _measured(result: TuningResult) -> Iterator[RenderableType]:
    if result.best and result.best.measurement:
        table = comparison(result.best.plan, result.best.measurement)
        yield section(heading("Predicted and measured", "the best trial, as it was proposed"), table)


def _warnings(result: TuningResult) -> Iterator[RenderableType]:
    if result.warnings:
        rows = pairs((reason.card, reason.text) for reason in result.warnings)
        yield section(heading("Warnings of cards about the best trial"), rows)


def _crashes(result: TuningResult) -> Iterator[RenderableType]:
    if result.crash_causes:
        title = heading("Settings that crash", "no other candidate with them was tried")
        yield section(title, pairs(map(_crash_cause, result.crash_causes)))


def _calibration(result: TuningResult) -> Iterator[RenderableType]:
    changes = factor_changes(result.calibration_before, result.calibration_after)
    yield section(heading("Calibration"), _errors(result), Text(""), pairs(changes))


def _cards(result: TuningResult) -> Iterator[RenderableType]:
    yield section(heading("Cards and the evidence"), _evidence(result.evidence))
    on_cpu = bool(result.trials) and result.trials[0].plan.cluster.device.kind == "cpu"
    if on_cpu and any(trial.measurement and trial.measurement.comm_ratio is not None for trial in result.trials):
        yield Text(f"\n{GLOO_NOTE}", "dim")


SECTIONS = {
    "trials": _trials, "front": _front, "plan": _plan, "measured": _measured, "warnings": _warnings, "crashes": _crashes,
    "calibration": _calibration, "evidence": _cards,
}  # fmt: skip
"""Function of each section of the report."""


def confirmation_words(confirmation: Confirmation) -> str:
    """Certainty that the best trial is the best, in a sentence."""
    pair = f"trial {confirmation.best} is ahead of trial {confirmation.runner_up} by {percent(confirmation.ahead)}"
    if not confirmation.in_doubt:
        return f"{pair}, more than two equal runs differ by chance"
    if not confirmation.pairs:
        return f"{pair}: no more than two equal runs differ by chance, and neither ran again"
    runs = (
        f"{len(confirmation.pairs)} pairs of longer runs that took turns"
        if len(confirmation.pairs) > 1
        else "one pair of longer runs"
    )
    lowest, highest = percent(min(confirmation.pairs)), percent(max(confirmation.pairs))
    differences = f"{lowest} to {highest} in {runs}" if lowest != highest else f"{lowest} in {runs}"
    return f"{pair} ({differences})" if confirmation.conclusive else f"{pair}, which settles nothing ({differences}): take either"


def _crash_cause(cause: CrashCause) -> tuple[str, str]:
    settings = " ".join(f"{name.partition('.')[2]}={str(value).lower()}" for name, value in cause.settings.items())
    trials = " and ".join(map(str, cause.crashed))
    return settings, f"crashed in trials {trials}; trial {cause.ran}, the same but for this, ran"


def _outcome(trial: TrialResult, goals: Goals) -> str:
    if trial.measurement is None:
        return Outcome.LOST.value
    outcome = trial.measurement.outcome
    missed = goals.missed(trial.plan, trial.measurement) if outcome is Outcome.OK else ()
    return "too large, simulated" if trial.simulated else outcome_words(outcome.value, missed)


def _errors(result: TuningResult) -> Table:
    title = "median error of the prediction"
    rows = (
        ("before calibration", *_error(result.errors_before)),
        ("after, on the trials it was fitted to", *_error(result.errors_after)),
        ("after, on each trial left out of the fit", *_error(result.errors_left_out)),
    )
    return columns(title, "trials", "step time", "peak memory", rows=rows, wrap=[title])


def _error(errors: Errors) -> tuple[str, str, str]:
    step, peak = errors.step_seconds, errors.peak_memory
    return str(errors.trials), "-" if step is None else percent(step), "-" if peak is None else percent(peak)


def factor_changes(before: Calibration, after: Calibration) -> Iterator[tuple[str, str]]:
    """Factors that trials changed."""
    for name in (field.name for field in fields(Calibration) if field.name != "trials"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield name.removesuffix("_seconds"), f"{_factor(name, old)} -> {_factor(name, new)}"


def _factor(name: str, value: float | tuple[float, float]) -> str:
    if isinstance(value, tuple):
        return " to ".join(f"x{end:.3g}" for end in value)
    return show_seconds(value) if name.endswith("_seconds") else f"x{value:.3g}"


def _evidence(evidence: Sequence[PolicyEvidence]) -> RenderableType:
    if not evidence:
        return Text("no pair of trials differed in nothing but what a card asks for, so nothing was confirmed or contradicted")
    return bullets(
        f"{item.card}/{item.policy}: pairs of trials for it: {item.confirmed}, against it: {item.contradicted}" for item in evidence
    )
