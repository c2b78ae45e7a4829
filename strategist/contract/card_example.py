"""Example scripts of cards, and the results of running them."""

from enum import StrEnum

from strategist.frozen import frozen


@frozen
class Script:
    """A whole program for ``ranks`` processes on CPU. ``refused`` is text of the error that it must end with; empty where it must
    succeed.
    """

    run: str
    ranks: int = 1
    refused: str = ""


@frozen
class Scripts:
    """Scripts to run one after the other, each with the same timeout."""

    scripts: tuple[Script, ...]
    timeout_seconds: float = 60.0


class ScriptOutcome(StrEnum):
    PASSED = "passed"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@frozen
class ScriptResult:
    """Result of one script. ``message`` and ``line`` of the script give reason and place of a failure."""

    outcome: ScriptOutcome
    seconds: float
    message: str = ""
    line: int | None = None

    @property
    def sound(self) -> bool:
        """Whether the script behaved as its card states."""
        return self.outcome in (ScriptOutcome.PASSED, ScriptOutcome.REFUSED)


@frozen
class Failure:
    """A failed test case or example of a card, by number from 1; ``line`` of the file, ``script_line`` of the script."""

    part: str
    number: int
    message: str
    line: int
    script_line: int | None = None


@frozen
class CardTest:
    """Test results of one card: number of cases, of examples, of examples that were refused as expected, and the failures."""

    card: str
    path: str
    cases: int
    examples: int
    refused: int
    seconds: float
    failures: tuple[Failure, ...] = ()
