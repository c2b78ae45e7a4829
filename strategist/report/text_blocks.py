"""Elements of a text report: headings, pairs, tables and bars; a table that is too wide for the terminal becomes a list."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

P = ParamSpec("P")
BAR_CELLS = 24
READABLE = 12
"""Cells that a wrapped column of a table needs."""


def grouped(blocks: Callable[P, Iterable[RenderableType]]) -> Callable[P, Group]:
    """Decorator of a report that yields its blocks, which stand one below the other."""

    @wraps(blocks)
    def group(*args: P.args, **kwargs: P.kwargs) -> Group:
        return Group(*blocks(*args, **kwargs))

    return group


def heading(text: str, detail: str = "") -> Text:
    """A line above a block."""
    return Text.assemble((text, "bold"), f"  {detail}" if detail else "")


def section(title: RenderableType, *body: RenderableType) -> Group:
    """A heading and what stands under it, indented, with an empty line before."""
    return Group("", title, *(Padding(part, (0, 0, 0, 2)) for part in body))


def chosen(
    made: Mapping[str, Callable[..., Iterator[RenderableType]]], names: Collection[str], *values: object
) -> Iterator[RenderableType]:
    """The parts of a report with these ``names``, each made of the ``values``."""
    for name, blocks in made.items():
        if name in names:
            yield from blocks(*values)


def more(made: Iterable[str], shown: Collection[str], command: str) -> Text:
    """How to print the parts that are not shown."""
    rest = ",".join(name for name in made if name not in shown)
    return Text(f"\nMore: {command} --explain, or --show {rest}" if rest else "", "dim")


def commands(title: RenderableType, *lines: str) -> Group:
    """A heading and commands to paste, each on one line however long: terminals wrap it and copy it whole."""
    return Group("", title, *(Text(f"  {line}", no_wrap=True, overflow="ignore") for line in lines))


class Bar(Text):
    """A share as a bar, which a list leaves out."""


class ListTable(Table):
    """A table without lines that becomes a list, one item for each row, where the terminal is too narrow for its columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._least_width(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._items()

    def _least_width(self, console: Console, options: ConsoleOptions) -> int:
        _, right, _, left = self.padding
        least = (len(self.columns) - 1) * (left + right)
        for column in self.columns:
            cells = (column.header, *column.cells) if self.show_header else column.cells
            width = max((Measurement.get(console, options.update(max_width=10_000), cell).maximum for cell in cells), default=0)
            least += width if column.no_wrap else min(width, READABLE)
        return least

    def _items(self) -> Iterator[RenderableType]:
        titles = [_one_line(column.header) if self.show_header else "" for column in self.columns]
        for row in zip(*(column.cells for column in self.columns), strict=True):
            mark, named = "-", list(zip(titles, row, strict=True))
            if titles[0] == "#":
                mark, named = f"#{_one_line(row[0])}", named[1:]
            yield bullets([_item(named)], mark=mark)


def _item(cells: Sequence[tuple[str, RenderableType]]) -> RenderableType:
    """Titles and values of a row as one paragraph; cells that are no text stand below it."""
    said = [(title, cell) for title, cell in cells if isinstance(cell, str | Text) and not isinstance(cell, Bar)]
    parts = (f"{title}: {value}" if title else value for title, cell in said if (value := _one_line(cell)))
    return Group(Text(", ".join(parts)), *(cell for _, cell in cells if not isinstance(cell, str | Text)))


def _one_line(cell: RenderableType) -> str:
    """A cell of several lines in one: a word that ends with a hyphen or slash goes on."""
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return " ".join(text.replace("-\n", "-").replace("/\n", "/").split())


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and what is said of them; long text wraps in its own column."""
    grid = ListTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, text)
    return grid


def columns(
    *titles: str, rows: Iterable[Iterable[RenderableType]] = (), wrap: Iterable[str] = (), left: Iterable[str] = ()
) -> Table:
    """A table without lines. Figures stand right; columns named in ``wrap`` give way where the place is narrow."""
    wraps, lefts = set(wrap), {*wrap, *left}
    table = ListTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for title in titles:
        justify: JustifyMethod = "left" if title in lefts else "right"
        table.add_column(title, justify=justify, no_wrap=title not in wraps, overflow="fold", vertical="top")
    for row in rows:
        table.add_row(*row)
    return table


@dataclass(frozen=True, kw_only=True)
class FoldingTable:
    """Rows with the same titles. Where column ``into`` would have less than ``readable`` cells and wants more, those in ``folds``
    move into it, the first ones first, each as its title and its value; where that is ``none`` there is nothing to say. Where even
    that is too wide, the table is a list of all columns."""

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
            more = [f"{title} {row[title]}" for title in self.rows[0] if title in folded and row[title] != "none"]
            table.add_row(*("\n".join([row[title], *more]) if title == self.into else row[title] for title in titles))
        return table


def bar(share: float, cells: int = BAR_CELLS) -> Text:
    """A share of one as a bar; beyond one it is full."""
    filled = min(cells, max(0, round(share * cells)))
    return Bar.assemble(("█" * filled, "cyan"), ("·" * (cells - filled), "dim"))


def bullets(lines: Iterable[RenderableType], mark: str = "-") -> Table:
    """A list whose lines wrap under themselves; ``1`` as mark numbers it."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold")
    for number, line in enumerate(lines, start=1):
        grid.add_row(f"{number}." if mark == "1" else mark, line)
    return grid
