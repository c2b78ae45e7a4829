"""Elements of text reports: headings, pairs, tables, bars. A table that is too wide for the terminal becomes a list."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import wraps
from typing import ParamSpec, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from strategist.frozen import frozen

P = ParamSpec("P")
BAR_CELLS = 24
MIN_COLUMN_CELLS = 12
"""Least width of a wrapped column, in characters."""


def grouped(blocks: Callable[P, Iterable[RenderableType]]) -> Callable[P, Group]:
    """Decorator for a report that yields its blocks: it returns them as one group."""

    @wraps(blocks)
    def group(*args: P.args, **kwargs: P.kwargs) -> Group:
        return Group(*blocks(*args, **kwargs))

    return group


def heading(text: str, detail: str = "") -> Text:
    """A line above a block."""
    return Text.assemble((text, "bold"), f"  {detail}" if detail else "")


def section(title: RenderableType, *body: RenderableType) -> Group:
    """A heading with an indented body, after an empty line."""
    return Group("", title, *(Padding(part, (0, 0, 0, 2)) for part in body))


def selected_blocks(
    sections: Mapping[str, Callable[..., Iterator[RenderableType]]], names: Collection[str], *values: object
) -> Iterator[RenderableType]:
    """Sections of a report with these ``names``; each is made from the ``values``."""
    for name, blocks in sections.items():
        if name in names:
            yield from blocks(*values)


def more_sections(sections: Iterable[str], shown: Collection[str], command: str) -> Text:
    """A hint on how to print the other sections."""
    rest = ",".join(name for name in sections if name not in shown)
    return Text(f"\nMore: {command} --explain, or --show {rest}" if rest else "", "dim")


def commands(title: RenderableType, *lines: str) -> Group:
    """A heading and commands to paste, each on one line of any length, so that terminals copy it as a whole."""
    return Group("", title, *(Text(f"  {line}", no_wrap=True, overflow="ignore") for line in lines))


class Bar(Text):
    """A share as a bar; omitted in lists."""


class ListTable(Table):
    """A table without rules that becomes a list, one item per row, if the terminal is too narrow for its columns.

    omissible: titles of columns that are left out of a narrow terminal, and named below it, if they are 1 in each row.
    """

    omissible: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = self._narrowed()
        if self._least_width(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
        elif narrow._least_width(console, options) <= options.max_width:
            yield from super(ListTable, narrow).__rich_console__(console, options)
            kept = [column.header for column in narrow.columns]
            omitted = (str(column.header) for column in self.columns if column.header not in kept)
            yield Text(f"{', '.join(omitted)}: 1 in each", "dim")
        else:
            yield from self._items()

    def _narrowed(self) -> Self:
        """The table without the columns that may be left out."""
        kept = [column for column in self.columns if column.header not in self.omissible or {*column.cells} != {"1"}]
        narrow = copy(self)
        narrow.columns = [replace(column, _index=index) for index, column in enumerate(kept)]
        return narrow

    def _least_width(self, console: Console, options: ConsoleOptions) -> int:
        _, right, _, left = self.padding
        min_width = (len(self.columns) - 1) * (left + right)
        for column in self.columns:
            cells = (column.header, *column.cells) if self.show_header else column.cells
            width = max((Measurement.get(console, options.update(max_width=10_000), cell).maximum for cell in cells), default=0)
            min_width += width if column.no_wrap else min(width, MIN_COLUMN_CELLS)
        return min_width

    def _items(self) -> Iterator[RenderableType]:
        titles = [_one_line(column.header) if self.show_header else "" for column in self.columns]
        for row in zip(*(column.cells for column in self.columns), strict=True):
            mark, cells = "-", list(zip(titles, row, strict=True))
            if titles[0] == "#":
                mark, cells = f"#{_one_line(row[0])}", cells[1:]
            yield bullets([_item(cells)], mark=mark)


def _item(cells: Sequence[tuple[str, RenderableType]]) -> RenderableType:
    """Titles and values of a row as one paragraph; cells other than text follow below it."""
    text_cells = [(title, cell) for title, cell in cells if isinstance(cell, str | Text) and not isinstance(cell, Bar)]
    parts = (f"{title}: {value}" if title else value for title, cell in text_cells if (value := _one_line(cell)))
    return Group(Text(", ".join(parts)), *(cell for _, cell in cells if not isinstance(cell, str | Text)))


def _one_line(cell: RenderableType) -> str:
    """A cell on one line; a line that ends with a hyphen or slash is joined to the next without space."""
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return " ".join(text.replace("-\n", "-").replace("/\n", "/").split())


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names with descriptions; long descriptions wrap in their own column."""
    grid = ListTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, text)
    return grid


def columns(
    *titles: str, rows: Iterable[Iterable[RenderableType]] = (), wrap: Iterable[str] = (), left: Iterable[str] = ()
) -> ListTable:
    """A table without rules. Figures are right-aligned; columns named in ``wrap`` become narrower if needed."""
    wrapping, left_aligned = set(wrap), {*wrap, *left}
    table = ListTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for title in titles:
        justify: JustifyMethod = "left" if title in left_aligned else "right"
        table.add_column(title, justify=justify, no_wrap=title not in wrapping, overflow="fold", vertical="top")
    for row in rows:
        table.add_row(*row)
    return table


@frozen
class FoldingTable:
    """A table whose columns can fold into another one.

    If column ``into`` needs more than its width and has fewer than ``readable`` characters, columns in ``folds`` move into it,
    first ones first, each as title and value (omitted if the value is ``none``). If the result is still too wide, the table becomes
    a list.
    """

    rows: Sequence[Mapping[str, str]]
    into: str
    folds: Sequence[str]
    left: Sequence[str] = ()
    readable: int = 28

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        folded = 0
        while folded < len(self.folds) and self._least_width(self.folds[:folded]) > options.max_width:
            folded += 1
        fits = self._least_width(self.folds[:folded]) <= options.max_width
        yield self._table(self.folds[:folded] if fits else ())

    def unfolded(self) -> Table:
        """The table with all its columns."""
        return self._table(())

    def _least_width(self, folded: Sequence[str]) -> int:
        titles = [title for title in self.rows[0] if title not in folded]
        widths = {title: max(cell_len(title), *(cell_len(row[title]) for row in self.rows)) for title in titles}
        words = max(cell_len(word) for row in self.rows for word in row[self.into].split())
        widths[self.into] = min(widths[self.into], max(words, self.readable))
        return sum(widths.values()) + len(widths) - 1

    def _table(self, folded: Sequence[str]) -> Table:
        titles = [title for title in self.rows[0] if title not in folded]
        table = columns(*titles, wrap=[self.into], left=self.left)
        for row in self.rows:
            folded_cells = [f"{title} {row[title]}" for title in self.rows[0] if title in folded and row[title] != "none"]
            table.add_row(*("\n".join([row[title], *folded_cells]) if title == self.into else row[title] for title in titles))
        return table


def bar(share: float, cells: int = BAR_CELLS) -> Text:
    """A share as a bar; full from 1 on."""
    filled = min(cells, max(0, round(share * cells)))
    return Bar.assemble(("█" * filled, "cyan"), ("·" * (cells - filled), "dim"))


def bullets(lines: Iterable[RenderableType], mark: str = "-") -> Table:
    """A list whose lines wrap with indentation; with ``1`` as mark it is numbered."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold")
    for number, line in enumerate(lines, start=1):
        grid.add_row(f"{number}." if mark == "1" else mark, line)
    return grid
