"""A finding, as a value: what was found, where, how serious, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One finding. ``code`` is stable; ``path`` names a file, ``line`` and ``column`` count from 1."""

    code: str
    level: Level
    message: str
    do: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part)
        text = f"{self.level} {self.code}: {self.message}"
        return (f"{place}: " if place else "") + text + (f"; {self.do}" if self.do else "")
