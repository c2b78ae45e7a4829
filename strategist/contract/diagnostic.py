"""A finding, as a value: what was found, where, how serious, and what to do."""

from dataclasses import field
from enum import StrEnum

from strategist.frozen import frozen


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Fix:
    """A safe correction: the characters from ``start`` up to ``end`` of a file, counted from 0, become ``replacement``."""

    path: str
    start: int
    end: int
    replacement: str


@frozen
class Diagnostic:
    """One finding. ``code`` is stable; ``path`` is a file; ``line`` and ``column`` count from 1; ``fix`` is None where no fix is
    safe.

    ``do`` is the next step. ``entry`` is the name of the other framework's setting that the finding is about.
    """

    code: str
    level: Level
    message: str
    do: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None
    fix: Fix | None = None
    entry: str = field(default="", metadata={"added": True})

    def __str__(self) -> str:
        position = ":".join(str(part) for part in (self.path, self.line, self.column) if part)
        text = f"{self.level} {self.code}: {self.message}"
        return (f"{position}: " if position else "") + text + (f"; {self.do}" if self.do else "")
