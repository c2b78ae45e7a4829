"""Findings as lines of text and as annotations of GitHub workflows."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from strategist.contract.diagnostic import Diagnostic, Level
from strategist.lint.fix import Repair
from strategist.lint.registry import Entry

_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "notice"}


def text_lines(findings: Sequence[Diagnostic], *, verbose: bool = False) -> Iterator[str]:
    """Findings as lines ``path:line:column: level CODE message; what to do``, and a last line with their number; ``verbose`` adds
    the line of the file.
    """
    for finding in findings:
        location = ":".join(str(part) for part in (finding.path, finding.line, finding.column) if part)
        line = f"{location}: {finding.level} {finding.code} {finding.message}"
        if verbose:
            yield line
            yield from _source_line(finding)
            yield f"      do: {finding.do}"
            yield ""
        else:
            yield f"{line}; {finding.do}"
    yield summary(findings)


def summary(findings: Sequence[Diagnostic]) -> str:
    """Number of findings by level, and of those that can be corrected."""
    if not findings:
        return "no findings"
    errors = sum(finding.level is Level.ERROR for finding in findings)
    fixable = sum(finding.fix is not None for finding in findings)
    return f"errors: {errors}, other findings: {len(findings) - errors}" + (f", {fixable} to correct with --fix" if fixable else "")


def _source_line(finding: Diagnostic) -> Iterator[str]:
    """The line of the file with a caret under the column."""
    line = _line(finding.path, finding.line) if finding.line else None
    if line is not None:
        yield f"{finding.line:5} | {line}"
        indent = "".join("\t" if letter == "\t" else " " for letter in line[: (finding.column or 1) - 1])
        yield f"      | {indent}^"


def _line(path: str, number: int) -> str | None:
    try:
        with Path(path).open(encoding="utf-8-sig", errors="replace") as file:
            return next(islice(file, number - 1, None), "").rstrip("\n") or None
    except OSError:
        return None


def github_lines(findings: Iterable[Diagnostic]) -> Iterator[str]:
    """Workflow commands: ``::error file=,line=,col=,title=::message``."""
    for finding in findings:
        fields = {"file": finding.path, "line": finding.line, "col": finding.column, "title": finding.code}
        given = ",".join(f"{name}={_property(str(value))}" for name, value in fields.items() if value)
        yield f"::{_COMMANDS[finding.level]} {given}::{_data(f'{finding.message}; {finding.do}')}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def diff_lines(repairs: Iterable[Repair]) -> Iterator[str]:
    """Corrections as a unified diff."""
    for repair in repairs:
        before, after = (text.splitlines() for text in (repair.before, repair.after))
        yield from difflib.unified_diff(before, after, repair.path, repair.path, lineterm="")


def page_lines(entry: Entry) -> Iterator[str]:
    """Page of a check."""
    yield f"{entry.code} ({entry.level}): {entry.law}"
    yield ""
    yield entry.page.what
    yield ""
    yield f"Why: {entry.page.why}"
    yield f"Do:  {entry.page.do}"
    for name in ("bad", "good"):
        yield ""
        yield f"{name.capitalize()}:"
        yield from (f"    {line}" for line in getattr(entry.page, name).splitlines())
