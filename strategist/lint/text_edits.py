"""Corrections that insert a line or remove a list entry, and keep all other text. None if the layout does not allow it."""

from strategist.contract.diagnostic import Fix
from strategist.files.yaml_file import Document, KeyPath


def line_before(document: Document, key_path: KeyPath, line: str) -> Fix | None:
    """Inserts a line before that of the key at ``key_path``, with the same indentation; None unless the key begins its line."""
    start = document.span(key_path, key=True)[0]
    line_start = document.text.rfind("\n", 0, start) + 1
    indent = document.text[line_start:start]
    if indent.strip():
        return None
    return Fix(path=document.path, start=start, end=start, replacement=f"{line}{newline(document.text)}{indent}")


def without_entry(document: Document, key_path: KeyPath) -> Fix | None:
    """Removes a list entry that is on lines of its own; None if a comment would be removed with it."""
    text, start = document.text, document.span(key_path)[0]
    line_start = text.rfind("\n", 0, start) + 1
    dash = text[line_start:start]
    if dash.strip() != "-":
        return None
    end = _line_end(text, start)
    while end < len(text) and _belongs_to_entry(text[end : _line_end(text, end)], dash.index("-")):
        end = _line_end(text, end)
    removed = text[line_start:end].rstrip()
    end = line_start + len(removed) + (len(newline(text)) if line_start + len(removed) < len(text) else 0)
    return None if "#" in removed else Fix(path=document.path, start=line_start, end=end, replacement="")


def newline(text: str) -> str:
    """The line ending of a text."""
    return "\r\n" if "\r\n" in text else "\n"


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1


def _belongs_to_entry(line: str, column: int) -> bool:
    """Whether a line is part of the entry whose hyphen is in ``column``."""
    return not line.strip() or len(line) - len(line.lstrip(" ")) > column
