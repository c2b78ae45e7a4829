"""Charts for terminals: ranks, mesh, timeline, candidates and funnel of a plan, and the progress of a study."""

from collections.abc import Collection, Iterator, Sequence
from math import log

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.report import MeshAxis, PlanReport, RankMemory, Seen, Space, StudyReport, Timeline
from strategist.contract.study import Study, StudyTrial
from strategist.report.answer_summary import fit_words
from strategist.report.goals import TITLES, figure, marked_number, objective_text, study_words
from strategist.report.page.funnel import steps
from strategist.report.page.study_progress import objective, trials_with_value
from strategist.report.plan import time_report
from strategist.report.plot_axes import Axis, axis_of
from strategist.report.setting_text import change_words, gib, percent, tokens
from strategist.report.text_blocks import bar, columns, grouped, heading, more_sections, section, selected_blocks
from strategist.units import show_bytes, show_seconds

CELLS, LINES = 60, 15
"""Width of a timeline and of a plot, and height of a plot, in characters."""

ACTION_STYLES = {
    "forward": ("F", "blue"), "backward": ("B", "yellow"), "backward for inputs": ("I", "cyan"),
    "backward for weights": ("W", "green"),
}  # fmt: skip
TAIL, IDLE = ("+", "magenta"), ("·", "dim")
CARDS = 10
TRIALS = 20
"""Number of a study's last trials on the screen, beside the best and the front."""

ROWS = 6
"""Number of ranks on the screen, in the table of memory and in the timeline."""


@grouped
def plan_charts(report: PlanReport, sections: Collection[str] = ()) -> Iterator[RenderableType]:
    """Outcome, memory, time and timeline of a plan; or only the named ``sections``."""
    plan, estimate = report.plan, report.plan.estimate
    speed = (
        f"{show_seconds(estimate.step_seconds)} a step, {tokens(estimate.tokens_per_second)} tokens/s, MFU {percent(estimate.mfu)}"
    )
    yield Text(f"{fit_words(estimate)} {speed}.", "bold")
    yield Text(f"plan {plan.id}: {plan.model.name} on {plan.cluster.name}, {change_words(plan)}")
    yield from selected_blocks(SECTIONS, sections or SCREEN, report, 0 if sections else ROWS)
    if not sections:
        yield more_sections(SECTIONS, SCREEN, "strategist report")


def _memory(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    capacity, rank_memories = report.plan.estimate.capacity_bytes, report.ranks
    largest = sorted(rank_memories, key=lambda item: -item.memory.total)[: rows or None]
    shown_count = f", the {len(largest)} fullest of {len(rank_memories)} kinds" if len(largest) < len(rank_memories) else ""
    table = ranks([item for item in rank_memories if item in largest], capacity)
    yield section(heading("Memory by rank", f"against the {show_bytes(capacity)} that can be used{shown_count}"), table)


def _time(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    yield time_report(report.plan.estimate)


def _mesh(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    cluster = report.plan.cluster
    if report.mesh:
        yield section(heading("Mesh", f"{cluster.nodes} x {cluster.gpus_per_node} devices"), mesh(report.mesh))


def _timeline(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    if report.timeline is None:
        yield section(heading("Timeline"), Text(report.no_timeline))
    else:
        yield section(heading("Timeline", show_seconds(report.timeline.step_seconds)), *timeline(report.timeline, rows))


def _candidates(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    if (space := report.space) is not None:
        detail = f"{len(space.seen):,} of {space.candidates:,}, the best of its group"
        yield section(heading("Candidates", detail), *candidates(space))


def _funnel(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    if report.space is not None:
        yield section(heading("Funnel", "bars are logarithmic"), funnel(report.space))


SECTIONS = {
    "memory": _memory, "time": _time, "mesh": _mesh, "timeline": _timeline, "candidates": _candidates, "funnel": _funnel,
}  # fmt: skip
"""Function of each section of a plan's charts; the second argument is the most rows of ranks, 0 for all."""

SCREEN = ("memory", "time", "timeline")


def ranks(rank_memories: Sequence[RankMemory], capacity: float) -> Table:
    """A bar for each group of equal ranks."""
    table = columns("ranks", "layers", "", "peak", "of it", left=["ranks", ""])
    for item in rank_memories:
        first, last = item.ranks[0], item.ranks[-1]
        total = item.memory.total
        name = str(first) if first == last else f"{first} to {last}"
        table.add_row(name, str(item.layers), bar(total / capacity), show_bytes(total), percent(total / capacity))
    return table


def mesh(axes: Sequence[MeshAxis]) -> Table:
    """The link that each axis's groups use."""
    table = columns("axis", "ranks", "apart", "where", "GB/s", "link", wrap=["link"], left=["axis", "where"])
    for axis in axes:
        span = "across nodes" if axis.across_nodes else "in a node"
        rate = f"{axis.link_bytes_per_second / 1e9:.3g}"
        table.add_row(axis.name, str(axis.degree), str(axis.stride), span, rate, axis.link)
    return table


def timeline(simulated: Timeline, rows: int = 0) -> Iterator[Text]:
    """A line per rank, or ``rows`` of them from the first to the last; each character shows the action in the middle of its time
    span.
    """
    cell_seconds, last = simulated.step_seconds / CELLS, len(simulated.bubble_seconds) - 1
    shown_ranks = range(last + 1) if not rows or last < rows else [round(row * last / (rows - 1)) for row in range(rows)]
    for rank in shown_ranks:
        cells = [IDLE] * CELLS
        for span in simulated.spans:
            if span.rank == rank:
                for cell in range(round(span.start_seconds / cell_seconds), min(round(span.end_seconds / cell_seconds), CELLS)):
                    cells[cell] = ACTION_STYLES.get(span.work, TAIL)
        yield Text.assemble((f"rank {rank:<3} ", "cyan"), *cells)
    kinds = dict.fromkeys(span.work for span in simulated.spans)
    labels = [f"{ACTION_STYLES[work][0]} {work}" for work in kinds if work in ACTION_STYLES]
    yield Text(", ".join([*labels, "+ what follows the last one", "· waiting"]), "dim")


def candidates(space: Space) -> Iterator[Text]:
    """Tokens/s against memory; of several candidates in one place the best is shown."""
    if not space.seen:
        return
    x_axis = axis_of([item.peak_memory_bytes for item in space.seen], CELLS - 1, 1.01)
    y_axis = axis_of([item.tokens_per_second for item in space.seen], LINES - 1, 1.01)
    yield from _plot([(item.peak_memory_bytes, item.tokens_per_second, _dot_style(item)) for item in space.seen], x_axis, y_axis)
    yield Text(f"{'':10}{gib(x_axis.low)} to {gib(x_axis.high)} GiB", "dim")
    yield Text("tokens/s against peak memory, logarithmic: * first, o front, • fits, · does not", "dim")


def _dot_style(item: Seen) -> tuple[str, str]:
    if item.place == 1:
        return "*", "bold"
    return ("o", "yellow") if item.front else ("•", "blue") if item.place else IDLE


def _plot(dots: Sequence[tuple[float, float, tuple[str, str]]], x_axis: Axis, y_axis: Axis) -> Iterator[Text]:
    """Dots as lines of text; earlier dots cover later ones."""
    grid: dict[tuple[int, int], tuple[str, str]] = {}
    for x, y, style in dots:
        grid.setdefault((round(y_axis.at(y)), round(x_axis.at(x))), style)
    for line in reversed(range(LINES)):
        value = y_axis.low * (y_axis.high / y_axis.low) ** (line / (LINES - 1))
        label = tokens(value) if line % 7 == 0 else ""
        yield Text.assemble((f"{label:>9} ", "dim"), *(grid.get((line, cell), (" ", "")) for cell in range(CELLS)))


def funnel(space: Space) -> Table:
    """Candidates left after each card, and after memory."""
    table, left = columns("", "left after it", "removed", "left", left=["", "left after it"]), space.candidates
    for name, count in (("all candidates", 0), *steps(space, CARDS)):
        left -= count
        share = log(1 + left) / log(1 + space.candidates) if space.candidates else 0.0
        table.add_row(name, bar(share), f"-{count:,}" if count else "", f"{left:,}")
    return table


@grouped
def study_charts(report: StudyReport) -> Iterator[RenderableType]:
    """Progress of a study, and influence of settings."""
    study, name = report.study, objective(report.study)
    yield heading(f"study {study.study}", study_words(study))
    if measured_trials := trials_with_value(study.trials, name):
        shown_trials = [
            trial
            for index, trial in enumerate(measured_trials, start=TRIALS - len(measured_trials))
            if index >= 0 or trial.number in (study.best, *study.front)
        ]
        shown_count = (
            f"{len(shown_trials)} of {len(measured_trials)}: the last ones, the best and the front; "
            if len(shown_trials) < len(measured_trials)
            else ""
        )
        yield section(
            heading("Trials", f"{shown_count}{TITLES[name]}; * is the best, + on the front"), _trial_bars(study, shown_trials, name)
        )
    if report.influences:
        rows = ((item.setting, bar(item.share), percent(item.share)) for item in report.influences[:CARDS])
        table = columns("setting", "", "share", rows=rows, left=["setting", ""])
        yield section(heading("Influence", "share of the variance of the step"), table)


def _trial_bars(study: Study, shown_trials: Sequence[StudyTrial], name: str) -> Table:
    highest = max(figure(name, trial) or 0.0 for trial in shown_trials)
    table = columns("#", "", "", "settings", wrap=["settings"], left=[""])
    for trial in shown_trials:
        share = (figure(name, trial) or 0.0) / highest
        table.add_row(
            marked_number(trial.number, study.best, study.front),
            bar(share, 16),
            objective_text(name, trial),
            change_words(trial.plan),
        )
    return table
