"""Builds HTML and SVG. Text is escaped when it enters an element, and nowhere else."""

from collections.abc import Iterable
from html import escape

PAGE_MARK = '<meta name="generator" content="strategist"'
"""Marker at the head of each page."""


class Html(str):
    """Markup. Any other text is escaped."""

    __slots__ = ()


def element(name: str, /, *content: str, **attributes: str | float | bool | None) -> Html:
    """An element. In attribute names ``_`` stands for ``-``, and a trailing one is dropped (``class_``). Attributes that are
    None or False are left out; numbers are rounded to the precision of a picture.
    """
    return Html(f"<{name}{_attributes(attributes)}>{join(content)}</{name}>")


def empty(name: str, /, **attributes: str | float | bool | None) -> Html:
    """A void HTML element, or an SVG element without content."""
    return Html(f"<{name}{_attributes(attributes)}/>")


def join(content: Iterable[str]) -> Html:
    """Concatenated content."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in content))


def _attributes(attributes: dict[str, str | float | bool | None]) -> str:
    return "".join(_attribute(name, value) for name, value in attributes.items() if value is not None and value is not False)


def _attribute(name: str, value: str | float | bool) -> str:
    html_name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {html_name}"
    return f' {html_name}="{escape(value) if isinstance(value, str) else format(round(value, 2), "g")}"'
