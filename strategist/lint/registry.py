"""The checks of a deck: one function each, registered under its code."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from strategist.cards.card import Card, Status
from strategist.diagnostic import Diagnostic, Level
from strategist.yamlfile import Document, Place


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One card file under check: the card as far as it could be read, what reading found, and the other ids of the deck.

    ``folder`` is where it was found; ``taken`` the file there that holds the card's id already, if one does.
    """

    path: str
    folder: str = ""
    document: Document | None = None
    card: Card | None = None
    findings: tuple[Diagnostic, ...] = ()
    known_ids: frozenset[str] = frozenset()
    taken: str = ""

    @property
    def sound(self) -> Card | None:
        """The card, where its form has no fault."""
        return None if self.findings else self.card

    @property
    def stable(self) -> Card | None:
        """The card, where its form has no fault and it claims to be stable."""
        return self.sound if self.sound and self.sound.status is Status.STABLE else None


Check = Callable[[Subject], Iterator[Diagnostic]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A check with its code and what it holds a card to."""

    code: str
    law: str
    run: Check


CHECKS: dict[str, Entry] = {}


def check(code: str, law: str) -> Callable[[Check], Check]:
    """Registers a check. A code is given once and never to another check."""

    def register(run: Check) -> Check:
        if code in CHECKS:
            raise ValueError(f"code {code} is taken")
        CHECKS[code] = Entry(code=code, law=law, run=run)
        return run

    return register


def finding(subject: Subject, code: str, message: str, place: Place = (), do: str = "", level: Level = Level.ERROR) -> Diagnostic:
    """A finding at a place of the subject's file."""
    line, column = subject.document.mark(("StrategyCard", *place)) if subject.document else (None, None)
    return Diagnostic(code=code, level=level, message=message, do=do, path=subject.path, line=line, column=column)
