"""How a plan scales: a table, and a plot of tokens/s over devices beside the ideal."""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract import codec
from strategist.contract.scaling import Scaling, ScalingPoint
from strategist.files import outputs
from strategist.report.line_plot import MADE_BY
from strategist.report.log_axis import axis_of
from strategist.report.scatter import BOTTOM, LEFT, SIDE
from strategist.report.setting_text import percent, tokens
from strategist.report.text_blocks import columns, grouped, heading, section
from strategist.units import show_seconds

MEANINGS = {
    "strong": "the same global batch on every count",
    "weak": "a global batch that grows with the count",
}
STYLE = (
    "text{font:9px sans-serif;fill:#555}.frame,.grid{fill:none;stroke:#ccc;stroke-width:.5}"
    ".ideal{fill:none;stroke:#999;stroke-dasharray:3}.measured{fill:none;stroke:#06c;stroke-width:1.5}circle{fill:#06c}"
)


@grouped
def scaling_report(scaling: Scaling) -> Iterator[RenderableType]:
    """The table and what has to be known to read it."""
    title = heading(f"{scaling.scaling.capitalize()} scaling of plan {scaling.plan_id}", MEANINGS[scaling.scaling])
    yield section(title, scaling_table(scaling))
    for note in scaling.notes:
        yield Text(f"\n{note}", "dim")


def scaling_table(scaling: Scaling) -> Table:
    """A row for each count."""
    table = columns(
        "#", "plan", "layout", "batch", "step", "tok/s", "predicted", "comm", "efficiency", wrap=["layout"], left=["plan"]
    )
    for point in scaling.points:
        if point.tokens_per_second is None:
            why = f"{point.outcome.value}: {point.message}"
            table.add_row(str(point.devices), point.how, why, str(point.global_batch), *["-"] * 5)
            continue
        shown = [None if value is None else show(value) for value, show in _figures(point)]
        table.add_row(str(point.devices), point.how, point.layout, str(point.global_batch), *(text or "-" for text in shown))
    return table


def _figures(point: ScalingPoint) -> Iterator[tuple[float | None, Callable[[float], str]]]:
    yield point.step_seconds, show_seconds
    yield point.tokens_per_second, tokens
    yield point.predicted_tokens_per_second, tokens
    yield point.exposed_comm_ratio, percent
    yield point.efficiency, percent


def scaling_plot(scaling: Scaling) -> str:
    """The plot as an SVG document of its own: both axes logarithmic, so that the ideal is a straight line of slope one."""
    points = [(point.devices, rate) for point in scaling.points if (rate := point.tokens_per_second) is not None]
    name = f"{scaling.scaling} scaling of plan {scaling.plan_id}: tokens/s over devices"
    body = "".join(_drawn(points)) if points else '<text x="8" y="-120">no count ran to its end</text>'
    width, height = LEFT + SIDE + 12, SIDE + BOTTOM + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' {MADE_BY} aria-label="{escape(name)}">'
        f'<style>{STYLE}</style><g transform="translate({LEFT:g} {SIDE + 4:g})">{body}</g></svg>\n'
    )


def write_scaling(scaling: Scaling, folder: Path) -> None:
    """scaling.json and scaling.svg.

    Raises:
        FileError: the folder cannot be written.
    """
    outputs.make_folder(folder)
    outputs.write(folder / "scaling.svg", scaling_plot(scaling))
    codec.save(scaling, folder / "scaling.json")


def _drawn(points: Sequence[tuple[int, float]]) -> Iterator[str]:
    devices = [count for count, _ in points]
    first = points[0][1] / points[0][0]
    rates = [rate for _, rate in points] + [first * count for count in devices]
    across, up = axis_of(devices, SIDE, 1.2), axis_of(rates, SIDE)
    yield f'<path class="frame" d="M0 0H{SIDE:g}V{-SIDE:g}H0Z"/>'
    for count in devices:
        yield f'<path class="grid" d="M{across.at(count):.1f} 0V{-SIDE:g}"/>'
        yield f'<text x="{across.at(count):.1f}" y="12" text-anchor="middle">{count}</text>'
    for tick in up.ticks():
        yield f'<path class="grid" d="M0 {-up.at(tick):.1f}H{SIDE:g}"/>'
        yield f'<text x="-4" y="{3 - up.at(tick):.1f}" text-anchor="end">{_short(tick)}</text>'
    yield _line("ideal", [(across.at(count), up.at(first * count)) for count in devices])
    places = [(across.at(count), up.at(rate)) for count, rate in points]
    yield _line("measured", places)
    for (count, rate), (x, y) in zip(points, places, strict=True):
        text = f"{count} devices: {tokens(rate)} tokens/s, {percent(rate / count / first)} of the ideal"
        yield f'<circle cx="{x:.1f}" cy="{-y:.1f}" r="2.6"><title>{escape(text, quote=False)}</title></circle>'
    yield f'<text x="{SIDE:g}" y="25" text-anchor="end">devices</text><text x="5" y="{12 - SIDE:g}">tokens/s; dashed: ideal</text>'


def _line(kind: str, places: Sequence[tuple[float, float]]) -> str:
    return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {-y:.1f}" for x, y in places)}"/>'


def _short(value: float) -> str:
    """1000 as 1k, 2000000 as 2M."""
    power = min(3, max(0, int(math.log10(value) / 3))) if value >= 1 else 0
    return f"{value / 1000**power:g}{('', 'k', 'M', 'G')[power]}"
