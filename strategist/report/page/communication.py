"""Bytes that a rank sends in a step, by mesh axis and collective."""

from collections.abc import Sequence

from strategist.contract.rank_observation import Traffic
from strategist.report.page.bars import Bar, bars
from strategist.report.page.html import Html, element
from strategist.units import show_bytes


def communication(traffic: Sequence[Traffic], caption: str) -> Html:
    """A bar per collective, largest first."""
    if not traffic:
        return element("p", "No rank sends anything to another.")
    rows = [_row(row) for row in sorted(traffic, key=lambda row: -row.message_bytes)]
    return bars(caption, rows, max(row.message_bytes for row in traffic))


def _row(row: Traffic) -> Bar:
    part = f"{'dp' if row.axis.startswith('dp') else row.axis}_communication"
    size = show_bytes(row.message_bytes)
    return Bar(name=f"{row.axis}: {row.collective}", parts={part: row.message_bytes}, words={part: size}, figure=size)
