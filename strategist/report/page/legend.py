"""Legends: the colour of each part with its figures, as a table."""

from collections.abc import Iterable, Sequence

from strategist.report.page.html import Html, element, join
from strategist.report.page.tables import swatch


def legend(caption: str, head: Sequence[str], parts: Iterable[tuple[str, ...]]) -> Html:
    """A line a part: its field's name, which is its colour, its name, and figures."""
    tops = (element("th", name, scope="col") for name in ("", *head))
    rows = (_row(*part) for part in parts)
    return element(
        "table", element("caption", caption), element("thead", element("tr", *tops)), element("tbody", *rows), class_="legend"
    )  # fmt: skip


def beside(picture: Html, key: Html) -> Html:
    """A picture with its legend at its right, or below it where there is no room."""
    return element("div", element("div", picture), key, class_="beside")


def _row(part: str, name: str, *figures: str) -> Html:
    return element("tr", element("th", join([swatch(part), name]), scope="row"), *(element("td", text) for text in figures))
