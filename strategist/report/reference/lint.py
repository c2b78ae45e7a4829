"""A page for each check of the linter, and the index of all codes."""

from collections.abc import Iterator, Sequence

from strategist.lint.registry import Entry
from strategist.report.reference.markdown import fence, page, prose, table


def lint_pages(checks: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """The index, then a page per code, each with its path."""
    rows = ([f"[{entry.code}]({entry.code}.md)", entry.level.value, prose(entry.law)] for entry in checks)
    introduction = "`strategist cards lint [PATH]` finds these; only errors make it end with 1. `cards explain CODE` prints a page."
    yield "lint/README.md", page("# Codes of the linter", introduction, table(("code", "level", "law"), rows))
    for entry in checks:
        yield f"lint/{entry.code}.md", page(*_entry(entry))


def _entry(entry: Entry) -> Iterator[str]:
    yield f"# {entry.code}: {prose(entry.law)}"
    yield f"Level: {entry.level.value}."
    yield prose(entry.page.what)
    yield f"**Why.** {prose(entry.page.why)}"
    yield f"**What to do.** {prose(entry.page.do)}"
    yield "Bad:"
    yield fence(entry.page.bad, "yaml")
    yield "Good:"
    yield fence(entry.page.good, "yaml")
