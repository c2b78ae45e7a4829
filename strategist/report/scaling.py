"""Scaling of a plan: a table, and a plot of tokens/s over devices with the ideal."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract import codec
from strategist.contract.scaling import Scaling, ScalingPoint
from strategist.files import outputs
from strategist.report.page.html import element
from strategist.report.page.plot import HEIGHT, WIDTH, Mark, Scale, line, plot
from strategist.report.page.svg_file import svg_file
from strategist.report.plot_axes import CountAxis, axis_of
from strategist.report.setting_text import percent, tokens
from strategist.report.text_blocks import columns, grouped, heading, section
from strategist.units import show_seconds

MEANINGS = {
    "strong": "the same global batch on every count",
    "weak": "a global batch that grows with the count",
}


@grouped
def scaling_report(scaling: Scaling) -> Iterator[RenderableType]:
    """The table, with notes on how to read it."""
    title = heading(f"{scaling.scaling.capitalize()} scaling of plan {scaling.plan_id}", MEANINGS[scaling.scaling])
    yield section(title, scaling_table(scaling))
    for note in scaling.notes:
        yield Text(f"\n{note}", "dim")


def scaling_table(scaling: Scaling) -> Table:
    """A row per number of devices."""
    table = columns(
        "#", "plan", "layout", "batch", "step", "tok/s", "predicted", "comm", "efficiency", wrap=["layout"], left=["plan"]
    )
    for point in scaling.points:
        if point.tokens_per_second is None:
            reason = f"{point.outcome.value}: {point.message}"
            table.add_row(str(point.devices), point.how, reason, str(point.global_batch), *["-"] * 5)
            continue
        figures = [None if value is None else show(value) for value, show in _figures(point)]
        table.add_row(str(point.devices), point.how, point.layout, str(point.global_batch), *(text or "-" for text in figures))
    return table


def _figures(point: ScalingPoint) -> Iterator[tuple[float | None, Callable[[float], str]]]:
    yield point.step_seconds, show_seconds
    yield point.tokens_per_second, tokens
    yield point.predicted_tokens_per_second, tokens
    yield point.exposed_comm_ratio, percent
    yield point.efficiency, percent


def scaling_plot(scaling: Scaling) -> str:
    """The plot as an SVG document. Both axes are logarithmic, so that the ideal is a straight line of slope one."""
    points = [(point.devices, rate) for point in scaling.points if (rate := point.tokens_per_second) is not None]
    name = f"{scaling.scaling} scaling of plan {scaling.plan_id}: tokens/s over devices"
    if not points:
        return svg_file(
            element("svg", element("text", "no count ran to its end", x=8, y=24), viewBox="0 0 240 40", aria_label=name)
        )
    devices, first = [count for count, _ in points], points[0][1] / points[0][0]
    ideal = [(count, first * count) for count in devices]
    scale = Scale(
        x=CountAxis(low=min(devices) / 1.2, high=max(devices) * 1.2, length=WIDTH, counts=devices),
        y=axis_of([rate for _, rate in (*points, *ideal)], HEIGHT),
        names=("devices", "tokens/s; dashed: ideal"), formats=(lambda count: f"{count:g}", tokens),
    )  # fmt: skip
    dots = [
        Mark(
            x=count, y=rate, css_class="front",
            text=f"{count} devices: {tokens(rate)} tokens/s, {percent(rate / count / first)} of the ideal",
        )
        for count, rate in points
    ]  # fmt: skip
    return svg_file(plot(name, scale, dots, under=[line(scale, ideal, "equal"), line(scale, points, "front-line")]))


def write_scaling(scaling: Scaling, folder: Path) -> None:
    """Writes scaling.json and scaling.svg.

    Raises:
        FileError: the folder cannot be written.
    """
    outputs.make_folder(folder)
    outputs.write(folder / "scaling.svg", scaling_plot(scaling))
    codec.save(scaling, folder / "scaling.json")
