"""Charts for terminals: ranks, mesh, timeline, candidates and funnel of a plan, and the progress of a study."""

from collections.abc import Collection, Iterator, Sequence
from math import log

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.report import MeshAxis, PlanReport, RankMemory, Seen, Space, StudyReport, Timeline
from strategist.contract.study import Study, StudyTrial
from strategist.report.goals import TITLES, figure, marked, shown, study_words
from strategist.report.log_axis import Axis, axis_of
from strategist.report.page.funnel import steps
from strategist.report.page.study_progress import known, objective
from strategist.report.plan import time_report
from strategist.report.setting_text import change_words, gib, percent, tokens
from strategist.report.summary import fit_words
from strategist.report.text_blocks import bar, chosen, columns, grouped, heading, more, section
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
    pace = (
        f"{show_seconds(estimate.step_seconds)} a step, {tokens(estimate.tokens_per_second)} tokens/s, MFU {percent(estimate.mfu)}"
    )
    yield Text(f"{fit_words(estimate)} {pace}.", "bold")
    yield Text(f"plan {plan.id}: {plan.model.name} on {plan.cluster.name}, {change_words(plan)}")
    yield from chosen(SECTIONS, sections or SCREEN, report, 0 if sections else ROWS)
    if not sections:
        yield more(SECTIONS, SCREEN, "strategist report")


def _memory(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    capacity, found = report.plan.estimate.capacity_bytes, report.ranks
    fullest = sorted(found, key=lambda item: -item.memory.total)[: rows or None]
    which = f", the {len(fullest)} fullest of {len(found)} kinds" if len(fullest) < len(found) else ""
    table = ranks([item for item in found if item in fullest], capacity)
    yield section(heading("Memory by rank", f"against the {show_bytes(capacity)} that can be used{which}"), table)


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
        seen = f"{len(space.seen):,} of {space.candidates:,}, the best of those that are alike"
        yield section(heading("Candidates", seen), *candidates(space))


def _funnel(report: PlanReport, rows: int) -> Iterator[RenderableType]:
    if report.space is not None:
        yield section(heading("Funnel", "bars are logarithmic"), funnel(report.space))


SECTIONS = {
    "memory": _memory, "time": _time, "mesh": _mesh, "timeline": _timeline, "candidates": _candidates, "funnel": _funnel,
}  # fmt: skip
"""Function of each section of a plan's charts; the second argument is the most rows of ranks, 0 for all."""

SCREEN = ("memory", "time", "timeline")


def ranks(found: Sequence[RankMemory], capacity: float) -> Table:
    """A bar for each group of equal ranks."""
    table = columns("ranks", "layers", "", "peak", "of it", left=["ranks", ""])
    for item in found:
        first, last = item.ranks[0], item.ranks[-1]
        total = item.memory.total
        who = str(first) if first == last else f"{first} to {last}"
        table.add_row(who, str(item.layers), bar(total / capacity), show_bytes(total), percent(total / capacity))
    return table


def mesh(axes: Sequence[MeshAxis]) -> Table:
    """The link that each axis's groups use."""
    table = columns("axis", "ranks", "apart", "where", "GB/s", "link", wrap=["link"], left=["axis", "where"])
    for axis in axes:
        where = "across nodes" if axis.across_nodes else "in a node"
        rate = f"{axis.link_bytes_per_second / 1e9:.3g}"
        table.add_row(axis.name, str(axis.degree), str(axis.stride), where, rate, axis.link)
    return table


def timeline(played: Timeline, rows: int = 0) -> Iterator[Text]:
    """A line per rank, or ``rows`` of them from the first to the last; each character shows the action in the middle of its time
    span.
    """
    each, last = played.step_seconds / CELLS, len(played.bubble_seconds) - 1
    shown = range(last + 1) if not rows or last < rows else [round(row * last / (rows - 1)) for row in range(rows)]
    for rank in shown:
        cells = [IDLE] * CELLS
        for span in played.spans:
            if span.rank == rank:
                for cell in range(round(span.start_seconds / each), min(round(span.end_seconds / each), CELLS)):
                    cells[cell] = ACTION_STYLES.get(span.work, TAIL)
        yield Text.assemble((f"rank {rank:<3} ", "cyan"), *cells)
    works = dict.fromkeys(span.work for span in played.spans)
    said = [f"{ACTION_STYLES[work][0]} {work}" for work in works if work in ACTION_STYLES]
    yield Text(", ".join([*said, "+ what follows the last one", "· waiting"]), "dim")


def candidates(space: Space) -> Iterator[Text]:
    """Tokens/s against memory; of several candidates in one place the best is shown."""
    if not space.seen:
        return
    across = axis_of([item.peak_memory_bytes for item in space.seen], CELLS - 1, 1.01)
    up = axis_of([item.tokens_per_second for item in space.seen], LINES - 1, 1.01)
    yield from _plot([(item.peak_memory_bytes, item.tokens_per_second, _look(item)) for item in space.seen], across, up)
    yield Text(f"{'':10}{gib(across.low)} to {gib(across.high)} GiB", "dim")
    yield Text("tokens/s against peak memory, logarithmic: * first, o front, • fits, · does not", "dim")


def _look(item: Seen) -> tuple[str, str]:
    if item.place == 1:
        return "*", "bold"
    return ("o", "yellow") if item.front else ("•", "blue") if item.place else IDLE


def _plot(dots: Sequence[tuple[float, float, tuple[str, str]]], across: Axis, up: Axis) -> Iterator[Text]:
    """Dots as lines of text; earlier dots cover later ones."""
    grid: dict[tuple[int, int], tuple[str, str]] = {}
    for right, high, look in dots:
        grid.setdefault((round(up.at(high)), round(across.at(right))), look)
    for line in reversed(range(LINES)):
        value = up.low * (up.high / up.low) ** (line / (LINES - 1))
        label = tokens(value) if line % 7 == 0 else ""
        yield Text.assemble((f"{label:>9} ", "dim"), *(grid.get((line, cell), (" ", "")) for cell in range(CELLS)))


def funnel(space: Space) -> Table:
    """Candidates left after each card, and after memory."""
    table, left = columns("", "left after it", "taken away", "left", left=["", "left after it"]), space.candidates
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
    if ran := known(study.trials, name):
        late = [
            trial
            for place, trial in enumerate(ran, start=TRIALS - len(ran))
            if place >= 0 or trial.number in (study.best, *study.front)
        ]
        which = f"{len(late)} of {len(ran)}: the last ones, the best and the front; " if len(late) < len(ran) else ""
        yield section(heading("Trials", f"{which}{TITLES[name]}; * is the best, + on the front"), _course(study, late, name))
    if report.influences:
        rows = ((item.setting, bar(item.share), percent(item.share)) for item in report.influences[:CARDS])
        table = columns("setting", "", "share", rows=rows, left=["setting", ""])
        yield section(heading("Influence", "share of the variance of the step"), table)


def _course(study: Study, ran: Sequence[StudyTrial], name: str) -> Table:
    most = max(figure(name, trial) or 0.0 for trial in ran)
    table = columns("#", "", "", "settings", wrap=["settings"], left=[""])
    for trial in ran:
        share = (figure(name, trial) or 0.0) / most
        table.add_row(marked(trial.number, study.best, study.front), bar(share, 16), shown(name, trial), change_words(trial.plan))
    return table
