"""Reads another system's config file: its settings, and findings about entries that are not understood."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.errors import FileError, did_you_mean
from strategist.formats.catalog import find_format, recognise, recognised
from strategist.formats.config_entries import Entries
from strategist.formats.finding_codes import finding
from strategist.formats.format import Format
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.referenced_files import started_files, unread, with_config
from strategist.formats.source import Source, load
from strategist.paths import data_dir

RELAXED = ("deepspeed",)
"""Formats whose own program reads JSON with comments (DeepSpeed 0.19.8, runtime/config.py: ``hjson.load``)."""

MAX_SHOWN_FLAGS = 4
"""Maximum number of flags that a finding names."""

MIN_SIMILARITY = 0.75
"""Least likeness of a name that a finding suggests (difflib's ratio): a letter or two differ, not the meaning."""

SCRIPT_ARGUMENT_ADVICE = "it is an argument of the script, or a misspelling that ends the run"
UNKNOWN_NAME_ADVICE = "correct or remove it: the program may ignore it silently"

EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values of entries that state nothing."""


def read(path: str | Path, name: str = "") -> tuple[Source, Format, ParsedConfig]:
    """The file, its format (by ``name``, otherwise detected), and the parsed config.

    Raises:
        FileError: the file cannot be read, has no known format, or holds an invalid value.
        InputError: no format has the name.
    """
    script = load(path, relaxed=True)
    source = with_config(script)
    chosen = find_format(name) if name else recognised(source)
    if chosen is None:
        script = source = _started(source)
        chosen = recognise(source)
    if script.relaxed and chosen.name not in RELAXED:
        load(script.path)  # ends with the place of the first comment
    source = chosen.opened(source)
    return source, chosen, _parsed(source, chosen, script)


def parse_config(source: Source, chosen: Format) -> ParsedConfig:
    """The parsed config of a source, with a finding for each entry that is not understood."""
    return _parsed(chosen.opened(source), chosen, source)


def _started(script: Source) -> Source:
    """The first file of a known format that a script starts or names; the source itself if it is no script.

    Raises:
        FileError: a script starts no such file.
    """
    for path in started_files(script):
        try:
            source = load(path, relaxed=True)
            if recognised(source):
                return source
        except FileError:
            continue
    if error := unread(script):
        raise error
    return script


def _parsed(source: Source, chosen: Format, script: Source) -> ParsedConfig:
    entries = Entries(source)
    found = chosen.read(entries)
    findings = (*found.findings, *entries.open_findings(), *_entry_findings(entries, chosen), *_unread(script, chosen))
    return replace(found, findings=findings, unresolved=tuple(entries.open))


def _unread(source: Source, chosen: Format) -> Iterator[Diagnostic]:
    """Findings on commands of a script that are not read, and differ from those read in flags that a plan depends on."""
    read = {**source.entries, **(source.launch.options if source.launch else {})}
    for line, flags in source.unread.items():
        names = sorted({*flags, *read})
        values = [{name: entries[name].value for name in names if name in entries} for entries in (flags, read)]
        differ = [name for name in names if values[0].get(name) != values[1].get(name) and not _matches(name, chosen.ignores)]
        if differ:
            shown = ", ".join(differ[:MAX_SHOWN_FLAGS]) + (
                f" and {len(differ) - MAX_SHOWN_FLAGS} more" if len(differ) > MAX_SHOWN_FLAGS else ""
            )
            text = f"the command at line {line} is not read: the last command counts, and they differ in {shown}"
            do = "check each command in a script of its own"
            yield replace(finding("FMT-011", text, do, source, about=f"command at line {line}"), line=line)


def _entry_findings(entries: Entries, chosen: Format) -> Iterator[Diagnostic]:
    """Findings on entries that were not read. A name unknown to the system is a mistake even where no plan depends on it."""
    known = names(chosen.listed) if chosen.listed else ()
    of_launcher = entries.source.launch.before if entries.source.launch else frozenset()
    for entry in entries.unread():
        if entry.name in of_launcher:
            continue
        if "$" in entry.name:
            do = "write the arguments down"
            yield finding("FMT-011", f"{entry.name} may hold further arguments: none is assumed", do, entries.source, entry.name)
            continue
        if known and entry.name not in chosen.ignores and not _matches(entry.name, known):
            advice = SCRIPT_ARGUMENT_ADVICE if chosen.scripts_add else UNKNOWN_NAME_ADVICE
            do = did_you_mean(entry.name, known, cutoff=MIN_SIMILARITY) or advice
            yield finding("FMT-001", f"{entry.name} is not a name that {chosen.title} knows", do, entries.source, entry.name)
        elif entry.value not in EMPTY and not _matches(entry.name, chosen.ignores):
            yield finding("FMT-009", f"{entry.name} is not priced", "measure it if it matters", entries.source, entry.name)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@cache
def names(stem: str) -> tuple[str, ...]:
    """Names that a system accepts, and patterns of names."""
    text = (data_dir("profiles") / "formats" / "names" / f"{stem}.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))
