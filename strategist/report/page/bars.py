"""Stacked bars, one per row; names and figures are text, so that they stay readable if the bar is narrow."""

from collections.abc import Mapping, Sequence

from strategist.frozen import frozen
from strategist.report.page.html import Html, element, empty

HEIGHT = 10.0


@frozen
class Bar:
    """A row: its name, stacked ``parts`` in order, their text, and the figure at its end."""

    name: str
    parts: Mapping[str, float]
    words: Mapping[str, str]
    figure: str


def bars(caption: str, rows: Sequence[Bar], max_value: float, marker: float | None = None, marker_note: str = "") -> Html:
    """Rows on a common scale that ends at ``max_value``; a line at ``marker`` has the label ``marker_note``."""
    lines = (
        element(
            "tr", element("th", row.name, scope="row"), element("td", _picture(row, max_value, marker), class_="bar"),
            element("td", row.figure),
        )
        for row in rows
    )  # fmt: skip
    note = (
        element("tfoot", element("tr", element("td"), element("td", marker_note, class_="words"), element("td")))
        if marker_note
        else Html()
    )
    return element("table", element("caption", caption), element("tbody", *lines), note, class_="bars")


def _picture(row: Bar, max_value: float, marker: float | None) -> Html:
    """The bar without text, as wide as the page allows."""
    x, shapes = 0.0, list[Html]()
    for part, value in row.parts.items():
        width = 100 * value / max_value
        tooltip = element("title", f"{row.name}: {row.words[part]}")
        shapes.append(element("rect", tooltip, x=x, y=0, width=max(width - 0.12, 0.05), height=HEIGHT, class_=f"part-{part}"))
        x += width
    if marker is not None:
        shapes.append(empty("path", d=f"M{100 * marker / max_value:.2f} -1.5V{HEIGHT + 1.5:g}", class_="capacity"))
    name = f"{row.name}: " + ", ".join([*row.words.values(), f"{row.figure} in all"])
    box = f"0 -1.5 100 {HEIGHT + 3:g}"
    return element("svg", *shapes, viewBox=box, preserveAspectRatio="none", role="img", aria_label=name)
