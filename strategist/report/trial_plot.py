"""Trials as points between two logarithmic axes with a line among them, as hand-written SVG: a front, or the best so far."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from strategist.report.line_plot import COLOURS, HEIGHT, WIDTH, picture
from strategist.report.log_axis import Axis, axis_of

ROOM = 1.05
"""What an axis shows beyond the first and the last value, as a ratio."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A trial: where it stands, what the pointer shows, and whether it is one that the line is about."""

    across: float
    up: float
    text: str
    ahead: bool = False


def plane(dots: Sequence[Dot], line: Sequence[tuple[float, float]], title: str, across: str, up: str) -> str:
    """The plot as a whole ``svg`` file. ``line`` goes through places on both axes; ``title`` is what a screen reader says,
    ``across`` and ``up`` name the axes."""
    right, high = axis_of([dot.across for dot in dots], WIDTH, ROOM), axis_of([dot.up for dot in dots], HEIGHT, ROOM)
    points = "L".join(f"{right.at(x):.1f} {-high.at(y):.1f}" for x, y in line)
    path = f'<path d="M{points}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.8"/>' if points else ""
    return picture((*_frame(right, high, across, up), path, *(_dot(right, high, dot) for dot in dots)), title)


def _frame(right: Axis, high: Axis, across: str, up: str) -> Iterator[str]:
    yield f'<path d="M0 0H{WIDTH:g}V{-HEIGHT:g}H0Z" fill="none" stroke="#999"/>'
    for tick in right.even_ticks():
        yield f'<path d="M{right.at(tick):.1f} 0V{-HEIGHT:g}" stroke="#ddd"/>'
        yield f'<text x="{right.at(tick):.1f}" y="15" text-anchor="middle">{tick:.4g}</text>'
    for tick in high.even_ticks():
        yield f'<path d="M0 {-high.at(tick):.1f}H{WIDTH:g}" stroke="#ddd"/>'
        yield f'<text x="-5" y="{4 - high.at(tick):.1f}" text-anchor="end">{tick:.4g}</text>'
    yield f'<text x="{WIDTH:g}" y="32" text-anchor="end">{escape(across)}</text>'
    yield f'<text x="6" y="{14 - HEIGHT:g}">{escape(up)}</text>'


def _dot(right: Axis, high: Axis, dot: Dot) -> str:
    place = f'cx="{right.at(dot.across):.1f}" cy="{-high.at(dot.up):.1f}"'
    look = f'r="3.4" fill="{COLOURS[0]}"' if dot.ahead else 'r="2.6" fill="#999"'
    return f"<circle {place} {look}><title>{escape(dot.text, quote=False)}</title></circle>"
