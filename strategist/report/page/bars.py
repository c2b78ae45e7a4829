"""Stacked bars, one per row; names and figures are text, so that they stay readable if the bar is narrow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strategist.report.page.html import Html, element, empty

HEIGHT = 10.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A row: its name, stacked ``parts`` in order, their text, and the figure at its end."""

    name: str
    parts: Mapping[str, float]
    words: Mapping[str, str]
    figure: str


def bars(caption: str, rows: Sequence[Bar], most: float, mark: float | None = None, marked: str = "") -> Html:
    """Rows on a common scale that ends at ``most``; a line at ``mark`` has the label ``marked``."""
    lines = (
        element(
            "tr", element("th", row.name, scope="row"), element("td", _picture(row, most, mark), class_="bar"),
            element("td", row.figure),
        )
        for row in rows
    )  # fmt: skip
    note = (
        element("tfoot", element("tr", element("td"), element("td", marked, class_="words"), element("td"))) if marked else Html()
    )
    return element("table", element("caption", caption), element("tbody", *lines), note, class_="bars")


def _picture(row: Bar, most: float, mark: float | None) -> Html:
    """The bar without text, as wide as the page allows."""
    at, pieces = 0.0, list[Html]()
    for part, value in row.parts.items():
        wide = 100 * value / most
        said = element("title", f"{row.name}: {row.words[part]}")
        pieces.append(element("rect", said, x=at, y=0, width=max(wide - 0.12, 0.05), height=HEIGHT, class_=f"part-{part}"))
        at += wide
    if mark is not None:
        pieces.append(empty("path", d=f"M{100 * mark / most:.2f} -1.5V{HEIGHT + 1.5:g}", class_="capacity"))
    name = f"{row.name}: " + ", ".join([*row.words.values(), f"{row.figure} in all"])
    box = f"0 -1.5 100 {HEIGHT + 3:g}"
    return element("svg", *pieces, viewBox=box, preserveAspectRatio="none", role="img", aria_label=name)
