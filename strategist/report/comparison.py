"""Comparison of two plans as a table."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.comparison import Comparison, Difference, Figure
from strategist.contract.estimate import shown_probability
from strategist.contract.knobs import show_value
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import percent, tokens
from strategist.report.text_blocks import bullets, columns, grouped, heading, section
from strategist.units import show_bytes, show_energy, show_money, show_seconds

FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_seconds": ("step time", show_seconds),
    "tokens_per_second": ("tokens/s", tokens),
    "mfu": ("MFU", percent),
    "peak_memory_bytes": ("peak memory", show_bytes),
    "capacity_bytes": ("of", show_bytes),
    "fit_confidence": ("fits with", lambda probability: percent(shown_probability(probability))),
    "host_memory_bytes_per_node": ("host memory a node", show_bytes),
    "comm_ratio": ("comm ratio", percent),
    "exposed_comm_ratio": ("exposed", percent),
    "price_per_step": ("price a step", show_money),
    "energy_joules_per_step": ("energy a step", show_energy),
}
"""Name of each figure, and how its values are shown."""


@grouped
def comparison_report(comparison: Comparison) -> Iterator[RenderableType]:
    """Differences of the plans, and their effects."""
    yield Text(_verdict(comparison), "bold")
    if comparison.situation:
        yield section(heading("They answer different questions"), _differences(comparison.situation, comparison))
    if comparison.settings:
        yield section(heading("Settings that differ"), _differences(comparison.settings, comparison))
    named_figures = [(*FIGURES[figure.name], figure) for figure in comparison.figures]
    yield section(heading("Predicted"), _figures(named_figures, comparison))
    for title, parts, show in (("Memory by part", comparison.memory, show_bytes), ("Time by part", comparison.time, show_seconds)):
        rows = [(PART_NAMES.get(part.name, part.name), show, part) for part in parts]
        yield section(heading(title), _figures(rows, comparison))
    for side, name in (("first", comparison.first), ("second", comparison.second)):
        if reasons := [f"{item.name}: {getattr(item, side)}" for item in comparison.cards if getattr(item, side) is not None]:
            yield section(heading(f"Reasons for {name} alone"), bullets(reasons))


def _verdict(comparison: Comparison) -> str:
    """Which plan is faster and which is smaller, on one line."""
    figures = {figure.name: figure for figure in comparison.figures}
    rate, peak = figures["tokens_per_second"].ratio or 1.0, figures["peak_memory_bytes"]
    saved_bytes = (peak.first or 0.0) - (peak.second or 0.0)
    faster = f"{comparison.second} trains at {rate:.2f} times the tokens/s of {comparison.first}"
    return f"{faster} and takes {show_bytes(abs(saved_bytes))} a device {'less' if saved_bytes >= 0 else 'more'}."


def _differences(items: Sequence[Difference], comparison: Comparison) -> Table:
    plans = (comparison.first, comparison.second)
    rows = ((item.name, *("-" if value is None else show_value(value) for value in (item.first, item.second))) for item in items)
    return columns("", *plans, rows=rows, left=[""], wrap=plans)


def _figures(rows: Sequence[tuple[str, Callable[[float], str], Figure]], comparison: Comparison) -> Table:
    table = columns("", comparison.first, comparison.second, "ratio", left=[""])
    for name, show, figure in rows:
        values = ("-" if value is None else show(value) for value in (figure.first, figure.second))
        table.add_row(name, *values, "-" if figure.ratio is None else f"{figure.ratio:.2f}")
    return table
