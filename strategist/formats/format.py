"""Format: what a file of another system says, both ways."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from strategist.contract.plan import Plan
from strategist.diagnostic import Diagnostic
from strategist.formats.entries import Entries
from strategist.formats.found import Found
from strategist.formats.source import Source


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of an export. ``runs`` says that it is the program's start."""

    name: str
    text: str
    runs: bool = False


@dataclass(frozen=True, kw_only=True)
class Written:
    """A plan in another system's words: its files, the one that says the settings first, and the command that trains with them."""

    files: tuple[File, ...]
    command: tuple[str, ...]
    findings: tuple[Diagnostic, ...] = ()


def as_it_is(source: Source) -> Source:
    """The source itself."""
    return source


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format.

    name: also that of its back end (``profiles/formats`` or ``profiles/programs``), which says what settings it can express.
    title: with the version that it was written for.
    recognises: whether a source is of this format; the first format that says so reads it.
    opened: the source with the entries that ``read`` knows, where those of its language are others. Raises FileError.
    read: what a source says. Raises FileError, with the place of what is wrong.
    write: a plan, with one line of reason by setting. Everything that the back end takes comes back from ``read`` as it was.
    ignores: entries, or patterns of them, that say nothing of a plan.
    listed: the file of names in ``profiles/formats/names`` that the system accepts; empty where any is accepted.
    """

    name: str
    title: str
    recognises: Callable[[Source], bool]
    read: Callable[[Entries], Found]
    write: Callable[[Plan, Mapping[str, str]], Written]
    opened: Callable[[Source], Source] = as_it_is
    ignores: tuple[str, ...] = field(default=(), repr=False)
    listed: str = ""
