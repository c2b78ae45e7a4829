"""Codes of findings about other systems' files."""

from strategist.contract.diagnostic import Diagnostic, Level
from strategist.formats.source import Source

CODES: dict[str, tuple[Level, str]] = {
    "FMT-001": (Level.WARNING, "an entry has no name that the system knows"),
    "FMT-002": (Level.WARNING, "an entry changes how the program runs, and no setting expresses it"),
    "FMT-003": (Level.INFO, "the file does not state a value that a price needs, and it is assumed"),
    "FMT-004": (Level.ERROR, "the settings break a law"),
    "FMT-005": (Level.ERROR, "it would run out of memory"),
    "FMT-006": (Level.WARNING, "a card rules the settings out"),
    "FMT-007": (Level.WARNING, "the format cannot express a setting of the plan"),
    "FMT-008": (Level.WARNING, "the command line contradicts the file"),
    "FMT-009": (Level.INFO, "an entry is known to the system and has no price"),
    "FMT-010": (Level.WARNING, "whether it fits the memory is open"),
    "FMT-011": (
        Level.WARNING,
        "an entry has a value that is known only where the program runs, and was assumed; or a command of a script is not read",
    ),
}
"""Level and meaning of each code; codes are stable."""


def unsupported_entry(source: Source, name: str, effect: str) -> Diagnostic:
    """Finding on an entry that no setting expresses. ``effect``: its effect, or what it is priced as."""
    do = "measure it if it matters" if "priced" in effect else "the price is that of a plan without it"
    return finding("FMT-002", f"{name}: {effect}", do, source, name)


def finding(code: str, message: str, do: str, source: Source | None = None, name: str = "", about: str = "") -> Diagnostic:
    """A finding, at the position of the entry ``name`` if the source has it; ``about`` names a missing entry instead."""
    entry = source.entries.get(name) if source and name else None
    path = (entry.path if entry else "") or (source.path if source else "")
    return Diagnostic(
        code=code, level=CODES[code][0], message=message, do=do, path=path,
        line=entry.line if entry else None, column=entry.column if entry else None, entry=about or name,
    )  # fmt: skip
