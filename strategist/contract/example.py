"""Example scripts of cards, and the results of running them."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, kw_only=True)
class Script:
    """A whole program for ``ranks`` processes on CPU; ``refused`` are words of the error that it must end with, if any."""

    run: str
    ranks: int = 1
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Scripts:
    """Scripts to run one after the other, each within the limit."""

    scripts: tuple[Script, ...]
    timeout_seconds: float = 60.0


class ScriptOutcome(StrEnum):
    PASSED = "passed"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, kw_only=True)
class ScriptResult:
    """Result of one script; ``message`` and ``line`` of the script say why and where it ended, if not by itself."""

    outcome: ScriptOutcome
    seconds: float
    message: str = ""
    line: int | None = None

    @property
    def sound(self) -> bool:
        """Whether the script did what its card says."""
        return self.outcome in (ScriptOutcome.PASSED, ScriptOutcome.REFUSED)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A case or an example, by number from 1, that is not as the card says; ``line`` of the file, ``script_line`` of the script."""

    part: str
    number: int
    message: str
    line: int
    script_line: int | None = None


@dataclass(frozen=True, kw_only=True)
class CardTest:
    """Test results of one card: its cases and its scripts, how many of these were refused as they should be, and what failed."""

    card: str
    path: str
    cases: int
    examples: int
    refused: int
    seconds: float
    failures: tuple[Failure, ...] = ()
