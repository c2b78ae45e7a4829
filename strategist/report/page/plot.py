"""Plots: two axes with ticks, and marks with tooltips that a filter can hide."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from strategist.frozen import frozen
from strategist.report.page.html import Html, element, empty, join
from strategist.report.plot_axes import Axis, LinearAxis, axis_of

WIDTH, HEIGHT, LEFT_MARGIN, BOTTOM_MARGIN, TOP_MARGIN = 620.0, 330.0, 96.0, 52.0, 30.0
AXIS_MARGIN = 1.08
MIN_X_TICK_DISTANCE, MIN_Y_TICK_DISTANCE = 76.0, 24.0
"""Least distance of ticks along the horizontal and the vertical axis."""


@frozen
class Mark:
    """A dot: its position, tooltip, CSS class, and attributes for filters."""

    x: float
    y: float
    text: str
    css_class: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)


@frozen
class Scale:
    """Both axes with their names; ``formats`` show their ticks."""

    x: Axis
    y: Axis
    names: tuple[str, str]
    formats: tuple[Callable[[float], str], Callable[[float], str]]


def scale_of(
    dots: Sequence[Mark],
    x_name: str,
    y_name: str,
    formats: tuple[Callable[[float], str], Callable[[float], str]],
    contained_x: float | None = None,
) -> Scale:
    """Logarithmic axes that contain all dots, and the horizontal value ``contained_x``."""
    x_axis = axis_of([*(dot.x for dot in dots), *([] if contained_x is None else [contained_x])], WIDTH, AXIS_MARGIN)
    return Scale(x=x_axis, y=axis_of([dot.y for dot in dots], HEIGHT, AXIS_MARGIN), names=(x_name, y_name), formats=formats)


def equal_scale(values: Sequence[float], names: tuple[str, str], tick_format: Callable[[float], str]) -> Scale:
    """Equal logarithmic axes over the range of the values: equal pairs lie on the diagonal."""
    x, y = (axis_of(values, length, AXIS_MARGIN) for length in (WIDTH, HEIGHT))
    return Scale(x=x, y=y, names=names, formats=(tick_format, tick_format))


def over_steps(scale: Scale, last_step: float) -> Scale:
    """The scale with a linear horizontal axis of whole numbers from 0 to ``last_step``."""
    return replace(scale, x=LinearAxis(low=0.0, high=max(last_step, 1.0) * 1.02, length=WIDTH))


def plot(name: str, scale: Scale, dots: Sequence[Mark], *, under: Sequence[Html] = (), id_: str | None = None) -> Html:
    """The picture; later dots cover earlier ones. ``under`` is drawn below all dots."""
    parts = join([*_frame(scale), *under, *(_dot(scale, dot) for dot in dots)])
    box = f"{-LEFT_MARGIN:g} {-HEIGHT - TOP_MARGIN:g} {LEFT_MARGIN + WIDTH + 14:g} {HEIGHT + TOP_MARGIN + BOTTOM_MARGIN:g}"
    return element("svg", parts, viewBox=box, role="img", aria_label=name, class_="plot", id=id_)


def line(scale: Scale, coordinates: Sequence[tuple[float, float]], css_class: str, *, steps: bool = False, text: str = "") -> Html:
    """A line through points; with ``steps`` it goes horizontally first, then vertically. ``text`` is its tooltip."""
    points = [(scale.x.at(x), -scale.y.at(y)) for x, y in coordinates]
    if not points:
        return Html()
    first, *others = points
    segments = "".join(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}" for x, y in others)
    tooltip = [element("title", text)] if text else []
    return element("path", *tooltip, d=f"M{first[0]:.1f} {first[1]:.1f}{segments}", class_=css_class)


def diagonal(scale: Scale, band: float = 0.0) -> Html:
    """The diagonal, on which both values are equal, over a band of values that differ by at most the share ``band``."""
    low, high = scale.x.low, scale.x.high
    upper, lower = 1 + band, 1 - band
    corners = ((low, low), (low, low * upper), (high / upper, high), (high, high), (high, high * lower), (low / lower, low))
    return join([*([line(scale, corners, "band")] if band else []), line(scale, [(low, low), (high, high)], "equal")])


def vertical_line(scale: Scale, value: float, label: str) -> Html:
    """A vertical line at a value, with a label at its top."""
    x = scale.x.at(value)
    text = element("text", label, x=x - 5, y=-HEIGHT + 12, text_anchor="end", class_="bound")
    return join([empty("path", d=f"M{x:.1f} 0V{-HEIGHT:g}", class_="capacity"), text])


def _frame(scale: Scale) -> Iterator[Html]:
    (x_name, y_name), (show_x, show_y) = scale.names, scale.formats
    for tick in _separate_ticks(scale.x, MIN_X_TICK_DISTANCE):
        x = scale.x.at(tick)
        yield empty("path", d=f"M{x:.1f} 0V{-HEIGHT:g}", class_="grid")
        yield element("text", show_x(tick), x=x, y=17, text_anchor="middle")
    for tick in _separate_ticks(scale.y, MIN_Y_TICK_DISTANCE):
        y = -scale.y.at(tick)
        yield empty("path", d=f"M0 {y:.1f}H{WIDTH:g}", class_="grid")
        yield element("text", show_y(tick), x=-7, y=y + 4, text_anchor="end")
    yield empty("path", d=f"M0 {-HEIGHT:g}V0H{WIDTH:g}", class_="frame")
    yield element("text", x_name, x=WIDTH / 2, y=44, text_anchor="middle", class_="axis")
    yield element("text", y_name, x=-LEFT_MARGIN, y=-HEIGHT - 14, class_="axis")


def _separate_ticks(axis: Axis, min_distance: float) -> Iterator[float]:
    """Ticks at least ``min_distance`` apart."""
    previous = -min_distance
    for tick in axis.even_ticks():
        if axis.at(tick) - previous >= min_distance:
            previous = axis.at(tick)
            yield tick


def _dot(scale: Scale, dot: Mark) -> Html:
    x, y = scale.x.at(dot.x), -scale.y.at(dot.y)
    css_class = f"dot {dot.css_class}".strip()
    return element(
        "circle", element("title", dot.text), cx=x, cy=y, r=7.0 if "this" in css_class else 3.6, class_=css_class, **dot.marks
    )
