"""Tables: figures right-aligned, text left-aligned; a wide table scrolls in a box of its own."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from strategist.report.page.html import Html, element

Row = Sequence[str]


def table(
    caption: str,
    head: Row,
    rows: Iterable[Row],
    *,
    words: Collection[int] = (0,),
    marks: Sequence[Mapping[str, str]] = (),
    id_: str | None = None,
) -> Html:
    """A table. Columns in ``words`` are text; the first cell of a row is its name. ``marks`` are attributes of each row for
    filters.
    """
    header_cells = (
        element("th", name, scope="col", class_="words" if column in words else None) for column, name in enumerate(head)
    )
    body = (_row(row, head, words, marks[column] if marks else {}) for column, row in enumerate(rows))
    grid = element(
        "table", element("caption", caption), element("thead", element("tr", *header_cells)), element("tbody", *body), id=id_
    )
    return element("div", grid, class_="wide", role="region", aria_label=caption, tabindex="0")


def _row(row: Row, head: Row, words: Collection[int], marks: Mapping[str, str]) -> Html:
    """Each cell carries its column's title, which is shown beside it on narrow screens."""
    first, *others = row
    cells = (
        element("td", text, class_="words" if column in words else None, data_label=head[column])
        for column, text in enumerate(others, start=1)
    )
    return element("tr", element("th", first, scope="row", data_label=head[0]), *cells, **marks)


def pairs(rows: Iterable[tuple[str, str]]) -> Html:
    """Names with descriptions."""
    return element("dl", *(part for name, text in rows for part in (element("dt", name), element("dd", text))))


def swatch(part: str) -> Html:
    """Colour patch of a part, beside its name."""
    return element("span", class_=f"swatch part-{part}", aria_hidden="true")
