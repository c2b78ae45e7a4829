"""Corrections that insert a line or remove a list entry, and keep all other text. None if the layout does not allow it."""

from strategist.contract.diagnostic import Fix
from strategist.files.yaml_file import Document, Place


def line_before(document: Document, place: Place, line: str) -> Fix | None:
    """Inserts a line before that of the key at ``place``, with the same indentation; None unless the key begins its line."""
    start = document.span(place, key=True)[0]
    begin = document.text.rfind("\n", 0, start) + 1
    indent = document.text[begin:start]
    if indent.strip():
        return None
    return Fix(path=document.path, start=start, end=start, replacement=f"{line}{newline(document.text)}{indent}")


def without_entry(document: Document, place: Place) -> Fix | None:
    """Removes a list entry that is on lines of its own; None if a comment would be removed with it."""
    text, start = document.text, document.span(place)[0]
    begin = text.rfind("\n", 0, start) + 1
    dash = text[begin:start]
    if dash.strip() != "-":
        return None
    end = _line_end(text, start)
    while end < len(text) and _belongs(text[end : _line_end(text, end)], dash.index("-")):
        end = _line_end(text, end)
    removed = text[begin:end].rstrip()
    end = begin + len(removed) + (len(newline(text)) if begin + len(removed) < len(text) else 0)
    return None if "#" in removed else Fix(path=document.path, start=begin, end=end, replacement="")


def newline(text: str) -> str:
    """The line ending of a text."""
    return "\r\n" if "\r\n" in text else "\n"


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1


def _belongs(line: str, column: int) -> bool:
    """Whether a line is part of the entry whose hyphen is in ``column``."""
    return not line.strip() or len(line) - len(line.lstrip(" ")) > column
