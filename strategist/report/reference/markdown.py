"""Elements of a Markdown page, as GitHub renders it."""

import re
from collections.abc import Iterable

from strategist.cards.card import Text

_SPECIAL = re.compile(r"[*<]")


def prose(text: object) -> str:
    """Text on one line with markup characters escaped; code spans are kept."""
    parts = " ".join(str(text).split()).split("`")
    return "`".join(part if index % 2 else _SPECIAL.sub(r"\\\g<0>", part) for index, part in enumerate(parts))


def both_languages(text: Text) -> str:
    """The text in all its languages, side by side."""
    return " · ".join(prose(words) for words in (text.en, text.zh) if words)


def code(text: str) -> str:
    """A code span."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def codes(texts: Iterable[str]) -> str:
    """Code spans, separated by commas."""
    return ", ".join(map(code, texts))


def fence(text: str, language: str = "") -> str:
    """A code block."""
    mark = "````" if "```" in text else "```"
    return f"{mark}{language}\n{text.rstrip()}\n{mark}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; each cell is one line."""
    titles = list(head)
    return "\n".join(map(_row, (titles, ["---"] * len(titles), *rows)))


def _row(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def bullets(lines: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)


def page(*blocks: str) -> str:
    """Blocks separated by empty lines; empty blocks are left out."""
    return "\n\n".join(block for block in blocks if block) + "\n"
