"""A simulation: what the fullest rank holds by part and by module, beside the estimate, and what it exchanges."""

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.plan import Plan
from strategist.contract.simulation import MEMORY_PARTS, SimulatedRank, Simulation
from strategist.report.blocks import bullets, columns, heading, section
from strategist.report.breakdown import counted_table
from strategist.report.words import gib, layout_words, moment_words, percent

BETWEEN = "there before the step"
LEAST = 5e-4
"""Shares of the peak below this one are not shown."""


def simulation_report(plan: Plan, simulation: Simulation) -> Group:
    """The verdict, the ranks, and the fullest of them in full."""
    return Group(*_blocks(plan, simulation))


def _blocks(plan: Plan, simulation: Simulation) -> Iterator[RenderableType]:
    fullest, capacity = simulation.fullest, simulation.capacity_bytes
    verdict = "fit" if simulation.fits else "do not fit"
    yield heading(f"Plan {simulation.plan_id}", layout_words(plan.candidate.layout))
    most = f"{gib(fullest.peak_memory_bytes)} of {gib(capacity)} GiB, on rank {fullest.rank}"
    yield Text(f"Its tensors {verdict}: at most {most}.")
    if len(simulation.ranks) > 1:
        yield section(heading("Ranks"), ranks_table(simulation))
    where = moment_words(fullest.moment)
    yield section(heading(f"Memory of rank {fullest.rank}", f"GiB when most is held: {where}"), parts_table(simulation))
    yield section(heading("By module", "whose it is, or whose pass made it"), modules_table(fullest))
    if fullest.traffic:
        yield section(heading("Collectives", f"of rank {fullest.rank}, in a step"), counted_table(fullest.traffic))
    if fullest.notes:
        yield section(heading("Otherwise than it would run"), bullets(map(Text, fullest.notes)))
    yield Text(f"\n{fullest.flops:.3g} FLOPs in matmuls and attention, {fullest.wall_seconds:.1f} s to simulate", "dim")


def ranks_table(simulation: Simulation) -> Table:
    """A row for each rank."""
    table = columns("rank", "stages", "peak GiB", "reserved", "between steps", "at", wrap=["stages"], left=["at"])
    for rank in simulation.ranks:
        stages = ", ".join(map(str, rank.stages))
        reserved = "-" if rank.peak_reserved_bytes is None else gib(rank.peak_reserved_bytes)
        table.add_row(
            str(rank.rank), stages, gib(rank.peak_memory_bytes), reserved, gib(rank.between_steps_bytes), moment_words(rank.moment)
        )
    return table


def parts_table(simulation: Simulation) -> Table:
    """Each part as the estimate has it, where it is of the same model, and as simulated."""
    estimate, fullest = simulation.predicted, simulation.fullest
    predicted = {} if estimate is None else asdict(estimate)
    table = columns("", *(["predicted"] if predicted else []), "simulated", left=[""])

    def row(name: str, expected: float | None, found: float) -> None:
        table.add_row(name, *(["-" if expected is None else gib(expected)] if predicted else []), gib(found))

    for part in MEMORY_PARTS:
        found = fullest.memory.get(part, 0)
        if max(predicted.get(part, 0.0), found) >= LEAST * fullest.peak_memory_bytes:
            row(part.replace("_", " "), predicted.get(part), found)
    row("tensors, all", estimate.allocated if estimate else None, fullest.peak_memory_bytes)
    if fullest.peak_reserved_bytes is not None:
        row("reserved for them", estimate.reserved if estimate else None, fullest.peak_reserved_bytes)
    if fullest.host_memory_bytes:
        row("in host memory", None, fullest.host_memory_bytes)
    return table


def modules_table(rank: SimulatedRank) -> Table:
    """Bytes of each module, those of all layers together, the largest first."""
    table = columns("", "GiB", "share", left=[""])
    shown = [(name, size) for name, size in rank.modules.items() if size >= LEAST * rank.peak_memory_bytes]
    for name, size in sorted(shown, key=lambda item: -item[1]):
        table.add_row(name.replace("_", " ") or BETWEEN, gib(size), percent(size / rank.peak_memory_bytes))
    return table
