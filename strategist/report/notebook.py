"""Blocks of a report as HTML and as Markdown, for notebooks."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from strategist.contract.answer import Answer
from strategist.contract.plan import Plan
from strategist.report.answer_summary import answer_summary
from strategist.report.plan import plan_report
from strategist.report.reference.markdown import bullets, fence, page, prose, table
from strategist.report.text_blocks import FoldingTable

_MARK = re.compile(r"-|[0-9]+\.")


def as_html(value: Any) -> str | None:
    """Report of an answer or a plan as HTML; None for another value."""
    return None if (report := _report(value)) is None else html(report)


def as_markdown(value: Any) -> str | None:
    """Report of an answer or a plan as Markdown; None for another value."""
    return None if (report := _report(value)) is None else markdown(report)


def _report(value: Any) -> RenderableType | None:
    """The command line's screen for a value."""
    if isinstance(value, Answer):
        return answer_summary(value)
    return plan_report(value) if isinstance(value, Plan) else None


def html(report: RenderableType) -> str:
    """A report as HTML: paragraphs, tables and commands to copy."""
    return "\n".join(map(_html, _leaves(report)))


def markdown(report: RenderableType) -> str:
    """A report as Markdown: paragraphs, tables and commands to copy."""
    return page(*map(_markdown, _leaves(report)))


def _leaves(block: RenderableType) -> Iterator[Table | Text]:
    """Tables and texts of a report in order, without empty lines."""
    if isinstance(block, Group):
        for part in block.renderables:
            yield from _leaves(part)
    elif isinstance(block, Padding):
        yield from _leaves(block.renderable)
    elif isinstance(block, FoldingTable):
        yield block.unfolded()
    elif isinstance(block, Table):
        yield block
    elif (text := block if isinstance(block, Text) else Text(str(block))).plain.strip():
        yield text


def _html(leaf: Table | Text) -> str:
    if isinstance(leaf, Text):
        tag = "pre" if leaf.no_wrap else "p"
        return f"<{tag}>{escape(leaf.plain.strip())}</{tag}>"
    cells = (("th", _titles(leaf)), *(("td", row) for row in _rows(leaf)))
    rows = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in cells if row)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _markdown(leaf: Table | Text) -> str:
    if isinstance(leaf, Text):
        return fence(leaf.plain.strip(), "sh") if leaf.no_wrap else prose(leaf.plain)
    rows = [[prose(cell) for cell in row] for row in _rows(leaf)]
    if titles := _titles(leaf):
        return table(titles, rows)
    return bullets(": ".join(cell for cell in row if not _MARK.fullmatch(cell)) for row in rows)


def _titles(rich_table: Table) -> list[str]:
    return [_words(column.header) for column in rich_table.columns] if rich_table.show_header else []


def _rows(rich_table: Table) -> Iterator[list[str]]:
    for row in zip(*(column.cells for column in rich_table.columns), strict=True):
        yield [_words(cell) for cell in row]


def _words(cell: RenderableType) -> str:
    """Text of a cell on one line."""
    parts = (leaf.plain if isinstance(leaf, Text) else "; ".join(map(" ".join, _rows(leaf))) for leaf in _leaves(cell))
    return " ".join(", ".join(parts).replace("-\n", "-").replace("/\n", "/").split())
