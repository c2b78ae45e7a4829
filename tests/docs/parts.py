"""Generated parts of tracked pages, each between two marks with its name."""

from collections.abc import Mapping


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """The page with its parts replaced."""
    for name, part in parts.items():
        head, _, tail = cut(text, name)
        text = f"{head}{part}\n{tail}"
    return text


def cut(text: str, name: str) -> tuple[str, str, str]:
    """The text before a part, in it and after it, with the marks.

    Raises:
        ValueError: the page has no such marks.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    first, last = text.index(begin) + len(begin), text.index(end)
    return text[:first], text[first:last], text[last:]
