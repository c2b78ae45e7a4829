"""Legends: a table of colours, names and figures of parts."""

from collections.abc import Iterable, Sequence

from strategist.report.page.html import Html, element, join
from strategist.report.page.tables import swatch


def legend(caption: str, head: Sequence[str], parts: Iterable[tuple[str, ...]]) -> Html:
    """A line per part: its field name (which determines the colour), its display name, and figures."""
    header_cells = (element("th", name, scope="col") for name in ("", *head))
    rows = (_row(*part) for part in parts)
    return element(
        "table", element("caption", caption), element("thead", element("tr", *header_cells)), element("tbody", *rows),
        class_="legend",
    )  # fmt: skip


def with_legend(picture: Html, key: Html) -> Html:
    """A picture with its legend to the right, or below it on narrow screens."""
    return element("div", element("div", picture), key, class_="beside")


def _row(part: str, name: str, *figures: str) -> Html:
    return element("tr", element("th", join([swatch(part), name]), scope="row"), *(element("td", text) for text in figures))
