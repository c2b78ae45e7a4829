"""Report of a simulation: memory of the fullest rank by part and by module, beside the estimate, and its collectives."""

from collections.abc import Collection, Iterator
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.plan import Plan
from strategist.contract.simulation import MEMORY_PARTS, SimulatedRank, Simulation, Verdict
from strategist.report.breakdown import untimed_traffic_table
from strategist.report.setting_text import gib, instant_words, layout_words, percent
from strategist.report.text_blocks import bullets, columns, heading, more_sections, section, selected_blocks

BEFORE_STEP = "there before the step"
MIN_SHARE = 5e-4
"""Parts below this share of the peak are left out."""


SEGMENTS_HINT = "; --fix expandable_segments=true leaves less unused between blocks"
"""Next step where the allocator's blocks fill the device."""

RANKS = 8
"""Number of ranks on the screen, the fullest ones."""


def simulation_report(plan: Plan, simulation: Simulation, sections: Collection[str] = ()) -> Group:
    """Verdict, fullest ranks and memory of the fullest of them; or only the named ``sections``."""
    names = sections or SCREEN
    title, verdict = _head(plan, simulation)
    rest = () if sections else (more_sections(SECTIONS, SCREEN, "strategist simulate"),)
    return Group(verdict, title, *selected_blocks(SECTIONS, names, simulation, len(simulation.ranks) if sections else RANKS), *rest)


def _head(plan: Plan, simulation: Simulation) -> tuple[RenderableType, RenderableType]:
    peak_rank, capacity = simulation.peak_rank, simulation.capacity_bytes
    too_large = simulation.proof.verdict is Verdict.TOO_LARGE
    open_words = "It is open whether its tensors fit, since the simulation is an upper bound"
    verdict = "Its tensors fit" if simulation.tensors_fit else "Its tensors do not fit" if too_large else open_words
    title = Text(f"plan {simulation.plan_id}: {plan.model.name} on {plan.cluster.name}, {layout_words(plan.candidate.layout)}")
    peak = f"{gib(peak_rank.peak_memory_bytes)} of {gib(capacity)} GiB, on rank {peak_rank.rank}"
    return title, Text(f"{verdict}: at most {peak}.{_reserved_sentence(plan, simulation)}", "bold")


def _reserved_sentence(plan: Plan, simulation: Simulation) -> str:
    """Reserved bytes against usable memory; empty if nothing is reserved."""
    if simulation.peak_rank.peak_reserved_bytes is None:
        return ""
    sizes = f"{gib(simulation.reserved_bytes)} of {gib(simulation.capacity_bytes)} GiB"
    hint = "" if plan.candidate.options.expandable_segments else SEGMENTS_HINT
    if not simulation.fits:
        excess = gib(simulation.reserved_bytes - simulation.capacity_bytes)
        reason = f", even after it releases cached blocks{hint}" if simulation.tensors_fit else ""
        return f" The allocator needs {sizes}, {excess} too many{reason}."
    releases = max(rank.cache_releases for rank in simulation.ranks)
    warning = (
        f" The device is full {releases} times a step: the allocator then waits and releases cached blocks{hint}."
        if releases
        else ""
    )
    return f" The allocator reserves {sizes} with its cache, which fits.{warning}"


def _ranks(simulation: Simulation, max_rows: int) -> Iterator[RenderableType]:
    if (count := len(simulation.ranks)) > 1:
        shown_count = f"the {max_rows} fullest of {count}" if count > max_rows else ""
        yield section(heading("Ranks", shown_count), ranks_table(simulation, max_rows))


def _memory(simulation: Simulation, max_rows: int) -> Iterator[RenderableType]:
    peak_rank, instant = simulation.peak_rank, instant_words(simulation.peak_rank.moment)
    yield section(heading(f"Memory of rank {peak_rank.rank}", f"GiB at the peak: {instant}"), parts_table(simulation))


def _modules(simulation: Simulation, max_rows: int) -> Iterator[RenderableType]:
    yield section(heading("By module", "module that owns it, or whose pass allocated it"), modules_table(simulation.peak_rank))


def _collectives(simulation: Simulation, max_rows: int) -> Iterator[RenderableType]:
    peak_rank = simulation.peak_rank
    if peak_rank.traffic:
        yield section(heading("Collectives", f"of rank {peak_rank.rank}, in a step"), untimed_traffic_table(peak_rank.traffic))


def _notes(simulation: Simulation, max_rows: int) -> Iterator[RenderableType]:
    peak_rank = simulation.peak_rank
    if peak_rank.notes:
        yield section(heading("Differences from a real run"), bullets(map(Text, peak_rank.notes)))
    yield Text(f"\n{peak_rank.flops:.3g} FLOPs in matmuls and attention, {peak_rank.wall_seconds:.1f} s to simulate", "dim")


SECTIONS = {"ranks": _ranks, "memory": _memory, "modules": _modules, "collectives": _collectives, "notes": _notes}
"""Function of each section of the report."""

SCREEN = ("ranks", "memory", "notes")


def ranks_table(simulation: Simulation, max_rows: int) -> Table:
    """A row for each of the ``max_rows`` fullest ranks."""
    largest = sorted(simulation.ranks, key=lambda rank: -rank.peak_memory_bytes)[:max_rows]
    table = columns("rank", "stages", "peak GiB", "reserved", "between steps", "at", wrap=["stages"], left=["at"])
    for rank in sorted(largest, key=lambda rank: rank.rank):
        stages = ", ".join(map(str, rank.stages))
        reserved = "-" if rank.peak_reserved_bytes is None else gib(rank.peak_reserved_bytes)
        table.add_row(
            str(rank.rank), stages, gib(rank.peak_memory_bytes), reserved, gib(rank.between_steps_bytes), instant_words(rank.moment)
        )
    return table


def parts_table(simulation: Simulation) -> Table:
    """Each part as simulated, and as estimated if the estimate is of the same model."""
    estimate, peak_rank = simulation.predicted, simulation.peak_rank
    predicted = {} if estimate is None else asdict(estimate)
    table = columns("", *(["predicted"] if predicted else []), "simulated", left=[""])

    def row(name: str, expected: float | None, simulated: float | None) -> None:
        sizes = (expected, simulated) if predicted else (simulated,)
        table.add_row(name, *("-" if size is None else gib(size) for size in sizes))

    for part in MEMORY_PARTS:
        simulated = peak_rank.memory.get(part, 0)
        if max(predicted.get(part, 0.0), simulated) >= MIN_SHARE * peak_rank.peak_memory_bytes:
            row(part.replace("_", " "), predicted.get(part), simulated)
    row("tensors, all", estimate.allocated if estimate else None, peak_rank.peak_memory_bytes)
    if peak_rank.peak_reserved_bytes is not None:
        if estimate is not None:
            row("with allocator slack, as in plan", estimate.total, None)
        predicted_reserved = min(estimate.reserved, max(estimate.total, simulation.capacity_bytes)) if estimate else None
        row("reserved, with the cache", predicted_reserved, peak_rank.peak_reserved_bytes)
    if peak_rank.host_memory_bytes:
        row("in host memory", None, peak_rank.host_memory_bytes)
    return table


def modules_table(rank: SimulatedRank) -> Table:
    """Bytes of each module, summed over layers, largest first."""
    peak = rank.peak_memory_bytes
    modules = sorted(((name, size) for name, size in rank.modules.items() if size >= MIN_SHARE * peak), key=lambda item: -item[1])
    rows = ((name.replace("_", " ") or BEFORE_STEP, gib(size), percent(size / peak)) for name, size in modules)
    return columns("", "GiB", "share", rows=rows, left=[""])
