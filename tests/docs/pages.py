"""Markdown pages, tracked or generated: code blocks, headings and links, with the anchors of a repository's host."""

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs import reference

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "cards", "examples", "profiles")
GENERATED = "docs/reference/"
"""Folder of the generated pages."""

PAGES = tuple(
    page
    for path in sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
    if not (page := path.relative_to(ROOT).as_posix()).startswith(GENERATED)
)
"""Paths of all tracked pages."""

FIRST, FOLDER = "docs/index.md", "README.md"
"""The site's first page, and the name of a folder's page."""


def generated() -> dict[str, str]:
    """Texts of the generated pages, by path."""
    return {GENERATED + path: text for path, text in reference.pages().items()}


@cache
def tokens(page: str) -> tuple[Token, ...]:
    """All Markdown tokens of a page, flattened."""
    text = generated()[page] if page.startswith(GENERATED) else (ROOT / page).read_text(encoding="utf-8")
    return tuple(_flat(MarkdownIt("commonmark").enable("table").parse(text)))


def _flat(found: list[Token]) -> Iterator[Token]:
    for token in found:
        yield token
        yield from _flat(token.children or [])


def links(page: str) -> list[str]:
    """Targets of links and pictures of a page, as written."""
    named = [str(token.attrs[name]) for token in tokens(page) for name in ("href", "src") if name in token.attrs]
    raw = [token.content for token in tokens(page) if token.type in ("html_block", "html_inline")]
    return named + [target for html in raw for target in re.findall(r"(?:href|src)=\"([^\"]+)\"", html)]


def place(page: str, link: str) -> str:
    """The path in the repository of a link's target; a folder's path is its page."""
    path = link.partition("#")[0]
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    return posixpath.join(found, FOLDER) if (ROOT / found).is_dir() else found


@cache
def anchors(page: str) -> frozenset[str]:
    """Anchors of a page's headings."""
    seen: dict[str, int] = {}
    names = []
    for opened, text in zip(tokens(page), tokens(page)[1:], strict=False):
        if opened.type == "heading_open":
            shown = "".join(part.content for part in text.children or [] if part.type in ("text", "code_inline"))
            name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
            names.append(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] = seen.get(name, 0) + 1
    return frozenset(names)


def blocks(page: str, *languages: str) -> list[str]:
    """Code blocks of a page in one of the languages."""
    return [token.content for token in tokens(page) if token.type == "fence" and token.info.strip() in languages]
