"""Tables: figures to the right, words to the left, wider than a phone in a box of their own."""

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
    """A table whose columns ``words`` are text, the first cell of each row its name. ``marks`` are attributes of each row, by
    which a filter finds it."""
    tops = (element("th", name, scope="col", class_="words" if place in words else None) for place, name in enumerate(head))
    body = (_row(row, head, words, marks[place] if marks else {}) for place, row in enumerate(rows))
    grid = element("table", element("caption", caption), element("thead", element("tr", *tops)), element("tbody", *body), id=id_)
    return element("div", grid, class_="wide", role="region", aria_label=caption, tabindex="0")


def _row(row: Row, head: Row, words: Collection[int], marks: Mapping[str, str]) -> Html:
    """Each cell says its column, which stands beside it on screens that are too narrow for the table."""
    first, *others = row
    cells = (
        element("td", text, class_="words" if place in words else None, data_label=head[place])
        for place, text in enumerate(others, start=1)
    )
    return element("tr", element("th", first, scope="row", data_label=head[0]), *cells, **marks)


def pairs(rows: Iterable[tuple[str, str]]) -> Html:
    """Names and what is said of them."""
    return element("dl", *(part for name, text in rows for part in (element("dt", name), element("dd", text))))


def swatch(part: str) -> Html:
    """The colour of a part, beside its name."""
    return element("span", class_=f"swatch part-{part}", aria_hidden="true")
