"""Memory by part against the capacity of a device, one bar per pipeline rank."""

from strategist.contract.estimate import MemoryParts
from strategist.contract.report import PlanReport, RankMemory
from strategist.report.page.bars import Bar, bars
from strategist.report.page.html import Html, join
from strategist.report.page.legend import legend, with_legend
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import counted, percent
from strategist.units import show_bytes

SCALE_MARGIN = 1.02


def memory(report: PlanReport) -> Html:
    """A bar per rank, and a table of the parts with their size on the fullest rank."""
    capacity = report.plan.estimate.capacity_bytes
    peak_rank = max(report.ranks, key=lambda rank: rank.memory.total)
    max_bytes = SCALE_MARGIN * max(capacity, peak_rank.memory.total)
    rows = [_row(_name(rank, is_only_rank=len(report.ranks) == 1), rank.memory) for rank in report.ranks]
    marker_note = f"the line is the {show_bytes(capacity)} that a program can use of a {report.plan.cluster.device.name}"
    memories = [*(rank.memory for rank in report.ranks), *(instant.memory for instant in report.instants)]
    drawn_parts = {part for memory_parts in memories for part in _parts(memory_parts)}
    parts = [
        (part, PART_NAMES.get(part, part), show_bytes(size), percent(size / capacity))
        for part, size in peak_rank.memory.needed.items()
        if part in drawn_parts
    ]
    instant_bars = [_row(instant.name, instant.memory) for instant in report.instants]
    pictures = [bars("Peak memory of a device by part", rows, max_bytes, capacity, marker_note)]
    if instant_bars:
        pictures.append(
            bars("Memory of the fullest rank through a step, from its first instant to its last", instant_bars, max_bytes, capacity)
        )
    return with_legend(
        join(pictures),
        legend(f"Parts of the fullest, {_name(peak_rank, is_only_rank=len(report.ranks) == 1)}", ("bytes", "of the device"), parts),
    )


def _row(name: str, memory: MemoryParts) -> Bar:
    parts = _parts(memory)
    words = {part: f"{PART_NAMES.get(part, part)} {show_bytes(size)}" for part, size in parts.items()}
    return Bar(name=name, parts=parts, words=words, figure=show_bytes(memory.total))


def _name(rank: RankMemory, *, is_only_rank: bool) -> str:
    first, last = rank.ranks[0], rank.ranks[-1]
    name = "every rank" if is_only_rank else f"rank {first}" if first == last else f"ranks {first} to {last}"
    return f"{name}, {counted(rank.layers, 'layer')}"


def _parts(memory: MemoryParts) -> dict[str, float]:
    """Parts above zero, in the same order for all ranks."""
    return {name: size for name, size in memory.needed.items() if size > 0}
