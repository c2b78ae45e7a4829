"""Scatter plots of predicted against published values as hand-written SVG, on logarithmic axes, with the diagonal and a band."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from strategist.report.log_axis import Axis, axis_of

SIDE, LEFT, BOTTOM = 240.0, 34.0, 28.0
"""The square that holds the points, and the room for labels left of it and below, in units of the picture."""

BAND = 0.2
"""Half the width of the band around the diagonal, as a share of the published value."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A published value, what was predicted, and what the pointer shows."""

    published: float
    predicted: float
    text: str


def scatter(points: Sequence[Point], name: str, unit: str) -> str:
    """The plot as an ``svg`` element; ``name`` is what a screen reader says, ``unit`` that of the values.

    Values that are not above zero have no place on it and stand at its low end.
    """
    axis = _axis(points)
    width, height = LEFT + SIDE + 12, SIDE + BOTTOM + 6
    parts = "".join((*_frame(axis, unit), *(_circle(axis, point) for point in points)))
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(name)}">'
        f'<g transform="translate({LEFT:g} {SIDE + 4:g})">{parts}</g></svg>'
    )


def _axis(points: Sequence[Point]) -> Axis:
    values = [value for point in points for value in (point.published, point.predicted) if value > 0] or [1.0]
    return axis_of(values, SIDE)


def _frame(axis: Axis, unit: str) -> Iterator[str]:
    """The square, its grid with labels, the band and the diagonal."""
    up, down = (SIDE * math.log(1 + sign * BAND) / math.log(axis.high / axis.low) for sign in (1, -1))
    yield f'<path class="frame" d="M0 0H{SIDE:g}V{-SIDE:g}H0Z"/>'
    corners = f"M0 0V{-up:.1f}L{SIDE - up:.1f} {-SIDE:g}H{SIDE:g}V{-SIDE - down:.1f}L{-down:.1f} 0Z"
    yield f'<path class="band" d="{corners}"/>'
    for tick in axis.ticks():
        place = axis.at(tick)
        yield f'<path class="grid" d="M{place:.1f} 0V{-SIDE:g}M0 {-place:.1f}H{SIDE:g}"/>'
        yield f'<text x="{place:.1f}" y="12" text-anchor="middle">{tick:g}</text>'
        yield f'<text x="-4" y="{3 - place:.1f}" text-anchor="end">{tick:g}</text>'
    yield f'<path class="equal" d="M0 0L{SIDE:g} {-SIDE:g}"/>'
    yield f'<text class="axis" x="{SIDE:g}" y="25" text-anchor="end">published, {unit}</text>'
    yield f'<text class="axis" x="5" y="{12 - SIDE:g}">predicted, {unit}</text>'


def _circle(axis: Axis, point: Point) -> str:
    x, y = (axis.at(max(value, axis.low)) for value in (point.published, point.predicted))
    return f'<circle cx="{x:.1f}" cy="{-y:.1f}" r="2.2"><title>{escape(point.text, quote=False)}</title></circle>'
