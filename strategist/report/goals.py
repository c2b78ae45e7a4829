"""Goals of a study and its Pareto front, as text and as a table."""

from collections.abc import Collection, Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.goals import Goals, cost, energy, peak_bytes
from strategist.contract.measurement import Outcome
from strategist.contract.study import Study, TrialResult
from strategist.report.setting_text import change_words, counted, percent, tokens
from strategist.report.text_blocks import columns, heading, section
from strategist.units import show_bytes, show_energy, show_money

MARKS = "* is the best, + is on the Pareto front"

FRONT_TRIALS = 5
"""Number of trials of a front on a screen."""

TITLES = {"throughput": "tokens/s", "memory": "peak memory", "cost": "$ a million tokens", "energy": "energy, a million tokens"}
"""Description of each objective."""


def goal_words(goals: Goals) -> str:
    """The goals in short: ``throughput and memory, 10% of the memory free``."""
    parts = [" and ".join(goals.objectives)]
    parts += [f"{percent(goals.headroom)} of the memory free"] if goals.headroom else []
    if goals.least_tokens_per_second is not None:
        parts.append(f"at least {tokens(goals.least_tokens_per_second)} tokens/s")
    if goals.most_cost is not None:
        parts.append(f"at most {show_money(goals.most_cost)} a million tokens")
    return ", ".join(parts)


def study_words(study: Study) -> str:
    """Status of a study, its number of trials, and its goals."""
    return f"{study.status.value}, {counted(len(study.trials), f'{study.kind.value} trial')} for {goal_words(study.goals)}"


def marked_number(number: int, best: int | None, front: Collection[int]) -> str:
    """Number of a trial, marked if it is the best or on the front."""
    return f"{number}{'*' if number == best else ''}{'+' if number in front else ''}"


def outcome_words(outcome: str, missed: Collection[str]) -> str:
    """Outcome of a trial, with the constraints that it violates."""
    return f"{outcome}, misses {' and '.join(missed)}" if missed else outcome


def goals_report(
    goals: Goals, trials: Iterable[TrialResult], front: Collection[int], nearest: int | None, max_trials: int | None = None
) -> Iterator[RenderableType]:
    """The front (at most ``max_trials`` trials) if there are several objectives; the nearest trial if all violate a constraint."""
    known = {trial.number: trial for trial in trials}
    if front:
        ordered_front = sorted((known[number] for number in front), key=lambda trial: _values(goals, trial))
        shown_count = f"{max_trials} of {len(ordered_front)}" if max_trials and len(ordered_front) > max_trials else "the"
        yield section(
            heading("Pareto front", f"{shown_count} trials that no other dominates"), front_table(goals, ordered_front[:max_trials])
        )
    if nearest is not None and (measured := known[nearest].measurement) is not None:
        missed = goals.missed(known[nearest].plan, measured)
        violations = ", ".join(f"{name} ({_excess_words(excess)})" for name, excess in missed.items())
        yield section(heading("No trial keeps to all constraints"), Text(f"trial {nearest} comes nearest: it misses {violations}"))


def front_table(goals: Goals, trials: Iterable[TrialResult]) -> Table:
    """A line per trial, with its value of each objective."""
    names = goals.objectives
    rows = ((str(trial.number), change_words(trial.plan), *(objective_text(name, trial) for name in names)) for trial in trials)
    return columns("#", "settings", *(TITLES[name] for name in names), rows=rows, wrap=["settings"])


def objective_text(objective: str, trial: TrialResult) -> str:
    """A trial's value of an objective, in words."""
    value = figure(objective, trial)
    if value is None:
        return "-"
    words = {"throughput": tokens, "memory": show_bytes, "cost": show_money, "energy": show_energy}
    return words[objective](value)


def figure(objective: str, trial: TrialResult) -> float | None:
    """A trial's value of an objective as a number: tokens/s, bytes, dollars or joules per million tokens; None if not measured."""
    measured = trial.measurement
    if measured is None or measured.outcome is not Outcome.OK:
        return None
    if objective == "memory":
        return peak_bytes(measured)
    if objective == "throughput" or measured.step_seconds is None:
        return measured.tokens_per_second
    return (cost if objective == "cost" else energy)(trial.plan, measured.step_seconds)


def _values(goals: Goals, trial: TrialResult) -> tuple[float, ...]:
    return (trial.measurement and goals.measured(trial.plan, trial.measurement)) or ()


def _excess_words(excess: float) -> str:
    return "not measured" if excess == float("inf") else f"by {percent(excess)}"
