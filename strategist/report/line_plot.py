"""Curves as hand-written SVG: one a name, by whole numbers from 1, on a logarithmic axis that grows with the number."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT = 560.0, 260.0, 46.0, 40.0, 110.0
"""The room of the curves, that for labels left of it and below, and that for the names right of it."""

MADE_BY = 'data-made-by="strategist"'
"""An attribute of each plot that is a file of its own."""

COLOURS = ("#0b6e4f", "#c1440e", "#3d5a80", "#8d6a9f", "#b58900", "#6b6b6b", "#a31621")


def curves(series: Mapping[str, Sequence[float]], title: str, across: str, up: str, top: float = 1.0) -> str:
    """The plot as a whole ``svg`` file. Values are shares from 0 to ``top``, shown as percentages; larger ones stand at the top.

    ``title`` is what a screen reader says, ``across`` and ``up`` name the axes.
    """
    most = max(len(values) for values in series.values())
    parts = [*_frame(most, across, up, top)]
    for (name, values), colour in zip(series.items(), COLOURS * len(series), strict=False):
        parts += _curve(name, values, colour, most, top)
    parts += _legend(list(series))
    return picture(parts, title)


def picture(parts: Iterable[str], title: str) -> str:
    """What stands right of and above the origin of both axes, as a whole ``svg`` file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT:g} {HEIGHT + BOTTOM + 10:g}" role="img"'
        f' {MADE_BY} aria-label="{escape(title)}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<g transform="translate({LEFT:g} {HEIGHT + 6:g})">{"".join(parts)}</g></svg>\n'
    )


def _at(number: int, most: int) -> float:
    return WIDTH * math.log(number) / math.log(max(most, 2))


def _height(value: float, top: float) -> float:
    return HEIGHT * min(value, top) / top


def _frame(most: int, across: str, up: str, top: float) -> Iterator[str]:
    yield f'<path d="M0 0H{WIDTH:g}V{-HEIGHT:g}H0Z" fill="none" stroke="#999"/>'
    for quarter in range(5):
        place = HEIGHT * quarter / 4
        yield f'<path d="M0 {-place:g}H{WIDTH:g}" stroke="#ddd"/>'
        yield f'<text x="-5" y="{4 - place:g}" text-anchor="end">{top * quarter / 4:.0%}</text>'
    for tick in (1, 2, 3, 5, 10, 20, 50, 100, 200):
        if tick <= most:
            yield f'<text x="{_at(tick, most):.1f}" y="15" text-anchor="middle">{tick}</text>'
    yield f'<text x="{WIDTH:g}" y="32" text-anchor="end">{escape(across)}</text>'
    yield f'<text x="6" y="{14 - HEIGHT:g}">{escape(up)}</text>'


def _curve(name: str, values: Sequence[float], colour: str, most: int, top: float) -> Iterator[str]:
    """Steps: a value holds until the next."""
    points = [f"H{_at(number, most):.1f}V{-_height(value, top):.1f}" for number, value in enumerate(values, start=1)]
    path = f'<path d="M0 {-_height(values[0], top):.1f}{"".join(points)}" fill="none" stroke="{colour}" stroke-width="1.8">'
    yield f"{path}<title>{escape(name)}</title></path>"


def _legend(names: Sequence[str]) -> Iterator[str]:
    for place, (name, colour) in enumerate(zip(names, COLOURS * len(names), strict=False)):
        y = 14 + 16 * place - HEIGHT
        yield f'<path d="M{WIDTH + 10:g} {y - 4:g}h16" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{WIDTH + 31:g}" y="{y:g}">{escape(name)}</text>'
