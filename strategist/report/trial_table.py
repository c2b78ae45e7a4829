"""Table of the latest trials for terminals."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from rich.console import ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.goals import peak_bytes
from strategist.contract.measurement import RAN, Kind, Measurement, Outcome
from strategist.contract.study import TrialResult
from strategist.report.goals import marked_number
from strategist.report.setting_text import change_words, counted, tokens
from strategist.report.text_blocks import FoldingTable, columns, heading, section
from strategist.units import show_bytes, show_seconds

WIDE_COLUMNS = 110
"""Terminal width from which a row has room for all figures of a trial and its settings."""

FASTEST_TRIALS = 5
"""Number of trials on the screen of a study."""

UNPAGED_LINES = 40
"""Number of printed lines if there is no screen."""


def latest_trials(
    trials: Sequence[TrialResult], best: int | None, options: ConsoleOptions, used_lines: int
) -> Iterator[RenderableType]:
    """The latest finished trials that fit below the lines already ``used_lines``."""
    max_rows = (options.height or UNPAGED_LINES) - used_lines - 2
    if not trials or max_rows < 1:
        return
    yield heading("Trials", f"the last {max_rows} of {len(trials)}" if len(trials) > max_rows else "")
    wide = options.max_width >= WIDE_COLUMNS
    table = _table(wide=wide)
    for trial in trials[-max_rows:]:
        table.add_row(*_row(trial, best=trial.number == best, wide=wide), style="bold" if trial.number == best else None)
    yield table


def best_line(trial: TrialResult | None, trials: Sequence[TrialResult]) -> Text:
    """The best trial with its measurement, or the outcomes of all trials."""
    if trial is None or trial.measurement is None:
        ends = Counter(outcome(other) for other in trials)
        outcomes = ", ".join(f"{count} {name}" for name, count in ends.most_common())
        return Text(f"No best trial: {outcomes or 'none has finished'}.", "bold")
    step, peak, speed = trial.measurement.step_seconds, peak_bytes(trial.measurement), trial.measurement.tokens_per_second
    parts = [
        *([f"{tokens(speed)} tokens/s"] if speed else []), *([f"step {show_seconds(step)}"] if step else []),
        *([f"peak memory {show_bytes(peak)}"] if peak else []),
    ]  # fmt: skip
    return Text(f"Best: trial {trial.number}, {', '.join(parts)}; {change_words(trial.plan)}.", "bold")


def fastest_trials(trials: Sequence[TrialResult], best: int | None) -> Iterator[RenderableType]:
    """The best trial and the fastest others, one line each."""
    measured_trials = [trial for trial in trials if _step_seconds(trial) is not None]
    measured_trials.sort(key=lambda trial: (trial.number != best, _step_seconds(trial)))
    if measured_trials:
        hidden = len(trials) - len(measured_trials[:FASTEST_TRIALS])
        table = _table(wide=False)
        for trial in measured_trials[:FASTEST_TRIALS]:
            table.add_row(*_row(trial, best=trial.number == best, wide=False))
        detail = f"* is the best; {counted(hidden, 'more trial')}: --show trials" if hidden else "* is the best"
        yield section(heading("Fastest trials", detail), table)


def _step_seconds(trial: TrialResult) -> float | None:
    measured = trial.measurement
    return measured.step_seconds if measured is not None and measured.outcome is Outcome.OK else None


Trial = TypeVar("Trial", bound=TrialResult)


def trials_table(trials: Sequence[Trial], best: int | None, front: Collection[int], end: Callable[[Trial], str]) -> RenderableType:
    """All trials with their predicted and measured figures; ``end`` says how each ended."""
    rows = [_named_cells(trial, marked_number(trial.number, best, front), end(trial)) for trial in trials]
    folds = ("by", "tok/s", "expected peak")
    return FoldingTable(rows=rows, into="settings", folds=folds, left=["by", "outcome"]) if rows else Text("none yet")


def _named_cells(trial: TrialResult, number: str, end: str) -> dict[str, str]:
    step, speed, peak = cells(trial.measurement)
    return {
        "#": number,
        "settings": change_words(trial.plan),
        "by": proposer(trial.proposed_by),
        "outcome": end,
        "expected": show_seconds(trial.plan.estimate.step_seconds),
        "step": step,
        "expected peak": show_bytes(trial.plan.estimate.memory.allocated),
        "peak": peak,
        "tok/s": speed,
    }


def figures(measured: Measurement) -> Iterator[str]:
    """Step time, tokens/s and peak memory, if measured."""
    if measured.step_seconds:
        yield show_seconds(measured.step_seconds)
    if measured.tokens_per_second:
        yield f"{tokens(measured.tokens_per_second)} tokens/s"
    if peak := peak_bytes(measured):
        yield show_bytes(peak)


def cells(measured: Measurement | None) -> tuple[str, str, str]:
    """Step time, tokens/s and peak memory for a table; a dash if not measured."""
    if measured is None or measured.outcome not in RAN:
        return cell_words(None, None, None)
    return cell_words(measured.step_seconds, measured.tokens_per_second, peak_bytes(measured))


def cell_words(step: float | None, speed: float | None, peak: int | None) -> tuple[str, str, str]:
    """Step time, tokens/s and peak memory in words."""
    return show_seconds(step) if step else "-", tokens(speed) if speed else "-", show_bytes(peak) if peak else "-"


def outcome(trial: TrialResult) -> str:
    """Outcome of a trial in one or two words."""
    if trial.measurement is None:
        return Outcome.LOST.value
    return "too large" if trial.measurement.kind is Kind.SIMULATED else trial.measurement.outcome.value


def proposer(name: str) -> str:
    """The card that proposed a trial, without its policy."""
    return name.removeprefix("card:").partition("/")[0] or "unknown"


def truncate(text: str) -> Text:
    """Text truncated to one line."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _table(*, wide: bool) -> Table:
    wide_titles = ("tok/s", "peak") if wide else ()
    titles = ("#", "settings", "outcome", "predicted", "step", *wide_titles, "by")
    return columns(*titles, wrap=["settings"], left=["outcome", "by"])


def _row(trial: TrialResult, *, best: bool, wide: bool) -> Iterator[RenderableType]:
    step, speed, peak = cells(trial.measurement)
    yield f"{trial.number}*" if best else str(trial.number)
    yield truncate(change_words(trial.plan))
    yield outcome(trial)
    yield show_seconds(trial.plan.estimate.step_seconds)
    yield from (step, speed, peak) if wide else (step,)
    yield proposer(trial.proposed_by)
