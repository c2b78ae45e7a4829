"""Building stones of a report: headings, pairs, tables and bars that keep their shape from 80 columns on."""

from collections.abc import Iterable

from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BAR_CELLS = 24


def heading(text: str, detail: str = "") -> Text:
    """A line above a block."""
    return Text.assemble((text, "bold"), f"  {detail}" if detail else "")


def section(title: RenderableType, *body: RenderableType) -> Group:
    """A heading and what stands under it, indented, with an empty line before."""
    return Group("", title, *(Padding(part, (0, 0, 0, 2)) for part in body))


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what is said of them; long text wraps in its own column."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, text)
    return grid


def columns(*titles: str, wrap: Iterable[str] = (), left: Iterable[str] = ()) -> Table:
    """A table without lines. Figures stand right; columns named in ``wrap`` give way where the place is narrow."""
    wraps, lefts = set(wrap), {*wrap, *left}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for title in titles:
        justify: JustifyMethod = "left" if title in lefts else "right"
        table.add_column(title, justify=justify, no_wrap=title not in wraps, overflow="fold", vertical="top")
    return table


def bar(share: float, cells: int = BAR_CELLS) -> Text:
    """A share of one as a bar; beyond one it is full."""
    filled = min(cells, max(0, round(share * cells)))
    return Text.assemble(("█" * filled, "cyan"), ("·" * (cells - filled), "dim"))


def bullets(lines: Iterable[RenderableType], mark: str = "-") -> Table:
    """A list whose lines wrap under themselves; ``1`` as mark numbers it."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold")
    for number, line in enumerate(lines, start=1):
        grid.add_row(f"{number}." if mark == "1" else mark, line)
    return grid
