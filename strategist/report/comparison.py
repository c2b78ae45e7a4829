"""Comparison of two plans: one screen, or whole sections."""

from collections.abc import Callable, Collection, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.comparison import Comparison, Difference, Figure
from strategist.contract.estimate import shown_probability
from strategist.contract.knobs import show_value
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import percent, tokens
from strategist.report.text_blocks import bullets, columns, grouped, heading, more_sections, section, selected_blocks
from strategist.units import show_bytes, show_energy, show_money, show_seconds

Row = tuple[str, Callable[[float], str], Figure]
"""Title of a figure, how its values are shown, and the figure."""

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


ON_SCREEN = ("step_seconds", "peak_memory_bytes")
"""Figures on the screen, each followed by its parts that differ most."""

MAX_INPUTS, MAX_SETTINGS, MAX_PARTS = 2, 6, 3
"""Number of differing inputs, of settings, and of parts of time and of memory on the screen."""


@grouped
def comparison_report(comparison: Comparison, names: Collection[str] = ()) -> Iterator[RenderableType]:
    """What differs most between the plans, on one screen; or whole sections with these ``names``."""
    yield Text(_verdict(comparison), "bold")
    yield from selected_blocks(SECTIONS, names, comparison)
    if not names:
        yield from _settings(comparison, MAX_INPUTS, MAX_SETTINGS)
        yield from _predicted_on_screen(comparison)
        yield more_sections(SECTIONS, ("settings",), "strategist compare")


def _predicted_on_screen(comparison: Comparison) -> Iterator[RenderableType]:
    """Step time and memory of the fullest device, and what changes them most."""
    figures = {figure.name: figure for figure in comparison.figures}
    rows: list[Row] = []
    for name, parts in zip(ON_SCREEN, (comparison.time, comparison.memory), strict=True):
        title, show = FIGURES[name]
        differing = [part for part in parts if part.first != part.second]
        largest = sorted(differing, key=lambda part: -abs((part.second or 0.0) - (part.first or 0.0)))[:MAX_PARTS]
        rows.append((title, show, figures[name]))
        rows += [(f"  {part}", show, figure) for part, _, figure in _part_rows(largest, show)]
    return _figures("Predicted, with the parts that differ most", rows, comparison)


def _settings(comparison: Comparison, inputs: int | None = None, settings: int | None = None) -> Iterator[RenderableType]:
    """Differing inputs and settings, those with a predicted effect first; at most so many."""
    ordered = sorted(comparison.settings, key=lambda item: item.name.startswith("options."))
    blocks = (("They answer different questions", comparison.situation, inputs), ("Settings that differ", ordered, settings))
    for title, items, limit in blocks:
        if items:
            more = f"{limit} of {len(items)}: --show settings" if limit is not None and len(items) > limit else ""
            yield section(heading(title, more), _differences(items[:limit], comparison))


def _reasons(comparison: Comparison) -> Iterator[RenderableType]:
    for side, name in (("first", comparison.first), ("second", comparison.second)):
        if reasons := [f"{item.name}: {getattr(item, side)}" for item in comparison.cards if getattr(item, side) is not None]:
            yield section(heading(f"Reasons for {name} alone"), bullets(reasons))


SECTIONS: dict[str, Callable[[Comparison], Iterator[RenderableType]]] = {
    "settings": _settings,
    "figures": lambda found: _figures("Predicted", [(*FIGURES[figure.name], figure) for figure in found.figures], found),
    "memory": lambda found: _figures("Memory by part", _part_rows(found.memory, show_bytes), found),
    "time": lambda found: _figures("Time by part", _part_rows(found.time, show_seconds), found),
    "reasons": _reasons,
}
"""Sections of a comparison by name."""


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


def _part_rows(parts: Sequence[Figure], show: Callable[[float], str]) -> list[Row]:
    return [(PART_NAMES.get(part.name, part.name), show, part) for part in parts]


def _figures(title: str, rows: Sequence[Row], comparison: Comparison) -> Iterator[RenderableType]:
    table = columns("", comparison.first, comparison.second, "ratio", left=[""])
    for name, show, figure in rows:
        values = ("-" if value is None else show(value) for value in (figure.first, figure.second))
        table.add_row(name, *values, "-" if figure.ratio is None else f"{figure.ratio:.2f}")
    yield section(heading(title), table)
