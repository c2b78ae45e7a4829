"""Plots: two axes with ticks, and marks with tooltips that a filter can hide."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strategist.report.log_axis import Axis, LinearAxis, axis_of
from strategist.report.page.html import Html, element, empty, join

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 620.0, 330.0, 96.0, 52.0, 30.0
ROOM = 1.08
WORD, LINE = 76.0, 24.0
"""Least distance of ticks along the horizontal and the vertical axis."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A dot: its position, tooltip, look, and attributes for filters."""

    across: float
    up: float
    text: str
    look: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Both axes with their names; ``shown`` formats their ticks."""

    across: Axis
    up: Axis
    names: tuple[str, str]
    shown: tuple[Callable[[float], str], Callable[[float], str]]


def scale_of(
    dots: Sequence[Mark],
    across: str,
    up: str,
    shown: tuple[Callable[[float], str], Callable[[float], str]],
    also: float | None = None,
) -> Scale:
    """Logarithmic axes that contain all dots, and the horizontal value ``also``."""
    right = axis_of([*(dot.across for dot in dots), *([] if also is None else [also])], WIDTH, ROOM)
    return Scale(across=right, up=axis_of([dot.up for dot in dots], HEIGHT, ROOM), names=(across, up), shown=shown)


def equal_scale(values: Sequence[float], names: tuple[str, str], shown: Callable[[float], str]) -> Scale:
    """Equal logarithmic axes over the range of the values: equal pairs lie on the diagonal."""
    across, up = (axis_of(values, length, ROOM) for length in (WIDTH, HEIGHT))
    return Scale(across=across, up=up, names=names, shown=(shown, shown))


def over_steps(scale: Scale, most: float) -> Scale:
    """The scale with a linear horizontal axis of whole numbers from 0 to ``most``."""
    return replace(scale, across=LinearAxis(low=0.0, high=max(most, 1.0) * 1.02, length=WIDTH))


def plot(name: str, scale: Scale, dots: Sequence[Mark], *, under: Sequence[Html] = (), id_: str | None = None) -> Html:
    """The picture; later dots cover earlier ones. ``under`` is drawn below all dots."""
    parts = join([*_frame(scale), *under, *(_dot(scale, dot) for dot in dots)])
    box = f"{-LEFT:g} {-HEIGHT - TOP:g} {LEFT + WIDTH + 14:g} {HEIGHT + TOP + BOTTOM:g}"
    return element("svg", parts, viewBox=box, role="img", aria_label=name, class_="plot", id=id_)


def line(scale: Scale, places: Sequence[tuple[float, float]], look: str, *, steps: bool = False, text: str = "") -> Html:
    """A line through points; with ``steps`` it goes horizontally first, then vertically. ``text`` is its tooltip."""
    points = [(scale.across.at(x), -scale.up.at(y)) for x, y in places]
    if not points:
        return Html()
    first, *others = points
    turns = "".join(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}" for x, y in others)
    said = [element("title", text)] if text else []
    return element("path", *said, d=f"M{first[0]:.1f} {first[1]:.1f}{turns}", class_=look)


def diagonal(scale: Scale, band: float = 0.0) -> Html:
    """The diagonal, on which both values are equal, over a band of values that differ by at most the share ``band``."""
    low, high = scale.across.low, scale.across.high
    more, less = 1 + band, 1 - band
    corners = ((low, low), (low, low * more), (high / more, high), (high, high), (high, high * less), (low / less, low))
    return join([*([line(scale, corners, "band")] if band else []), line(scale, [(low, low), (high, high)], "equal")])


def vertical_line(scale: Scale, across: float, said: str) -> Html:
    """A vertical line at a value, with a label at its top."""
    x = scale.across.at(across)
    words = element("text", said, x=x - 5, y=-HEIGHT + 12, text_anchor="end", class_="bound")
    return join([empty("path", d=f"M{x:.1f} 0V{-HEIGHT:g}", class_="capacity"), words])


def _frame(scale: Scale) -> Iterator[Html]:
    (across, up), (right, high) = scale.names, scale.shown
    for tick in _spaced(scale.across, WORD):
        x = scale.across.at(tick)
        yield empty("path", d=f"M{x:.1f} 0V{-HEIGHT:g}", class_="grid")
        yield element("text", right(tick), x=x, y=17, text_anchor="middle")
    for tick in _spaced(scale.up, LINE):
        y = -scale.up.at(tick)
        yield empty("path", d=f"M0 {y:.1f}H{WIDTH:g}", class_="grid")
        yield element("text", high(tick), x=-7, y=y + 4, text_anchor="end")
    yield empty("path", d=f"M0 {-HEIGHT:g}V0H{WIDTH:g}", class_="frame")
    yield element("text", across, x=WIDTH / 2, y=44, text_anchor="middle", class_="axis")
    yield element("text", up, x=-LEFT, y=-HEIGHT - 14, class_="axis")


def _spaced(axis: Axis, least: float) -> Iterator[float]:
    """Ticks at least ``least`` apart."""
    at = -least
    for tick in axis.even_ticks():
        if axis.at(tick) - at >= least:
            at = axis.at(tick)
            yield tick


def _dot(scale: Scale, dot: Mark) -> Html:
    x, y = scale.across.at(dot.across), -scale.up.at(dot.up)
    look = f"dot {dot.look}".strip()
    return element("circle", element("title", dot.text), cx=x, cy=y, r=7.0 if "this" in look else 3.6, class_=look, **dot.marks)
