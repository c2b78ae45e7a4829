"""Reading a file of another system: what it says, and what of it nothing here understands."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from strategist.diagnostic import Diagnostic
from strategist.formats.catalog import find_format, recognise
from strategist.formats.codes import finding
from strategist.formats.entries import Entries
from strategist.formats.format import Format
from strategist.formats.found import Found
from strategist.formats.source import Source, load
from strategist.paths import data_dir


def read(path: str | Path, name: str = "") -> tuple[Source, Format, Found]:
    """The file, its format (that of the name, else the one that it is recognised as), and what it says.

    Raises:
        FileError: the file cannot be read, is of no known format, or holds a value that is none.
        InputError: no format has the name.
    """
    source = load(path)
    chosen = find_format(name) if name else recognise(source)
    return source, chosen, understood(source, chosen)


def understood(source: Source, chosen: Format) -> Found:
    """What a source says, with a finding for each entry that nothing understands."""
    entries = Entries(source)
    found = chosen.read(entries)
    return replace(found, findings=(*found.findings, *_left(entries, chosen)))


def _left(entries: Entries, chosen: Format) -> Iterator[Diagnostic]:
    known = names(chosen.listed) if chosen.listed else ()
    for entry in entries.left(chosen.ignores):
        if known and not any(fnmatchcase(entry.name, pattern) for pattern in known):
            near = get_close_matches(entry.name, known, n=1)
            do = f"did you mean {near[0]}?" if near else "correct or remove it: the program may pass over it in silence"
            yield finding("FMT-001", f"{entry.name} is no name that {chosen.title} knows", do, entries.source, entry.name)
        else:
            yield finding("FMT-009", f"{entry.name} is not priced", "measure it if it matters", entries.source, entry.name)


@cache
def names(stem: str) -> tuple[str, ...]:
    """Names that a system accepts, and patterns of them."""
    text = (data_dir("profiles") / "formats" / "names" / f"{stem}.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))
