"""Registry of checks: one function each, registered under its code, with its page of documentation."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from inspect import cleandoc

from strategist.cards.card import ROOT, Card, Status
from strategist.cards.deck import Deck
from strategist.cards.flow import FLOW_ROOT, Flow, is_flow
from strategist.contract.diagnostic import Diagnostic, Fix, Level
from strategist.contract.listings import LintPage
from strategist.files.yaml_file import Document, KeyPath
from strategist.frozen import frozen
from strategist.lint.environment import LintEnvironment


@frozen
class Subject:
    """One file under check: the card or flow as far as it could be read, the findings of reading it, and its surroundings.

    folder: folder in which it was found.
    deck: the cards without faults that act together with it.
    known_ids: ids of all cards.
    id_holder: file in the same folder that has its id already; empty without one.
    replaces: file in another folder whose card it replaces; empty without one.
    """

    path: str
    folder: str = ""
    document: Document | None = None
    card: Card | None = None
    flow: Flow | None = None
    findings: tuple[Diagnostic, ...] = ()
    deck: Deck = field(default_factory=lambda: Deck(()))
    known_ids: frozenset[str] = frozenset()
    id_holder: str = ""
    replaces: str = ""
    environment: LintEnvironment | None = None

    @property
    def sound(self) -> Card | None:
        """The card, if reading it gave no findings; otherwise None."""
        return None if self.findings else self.card

    @property
    def stable(self) -> Card | None:
        """The card, if reading it gave no findings and its status is stable; otherwise None."""
        return self.sound if self.sound and self.sound.status is Status.STABLE else None

    @property
    def others(self) -> Mapping[str, Card]:
        """All cards of the deck by id."""
        return {card.id: card for card in self.deck.cards}


Check = Callable[[Subject], Iterator[Diagnostic]]


@frozen
class Entry:
    """A check with its code, its level, the law that files must keep, and its page."""

    code: str
    level: Level
    law: str
    page: LintPage
    run: Check


CHECKS: dict[str, Entry] = {}

_SECTION = re.compile(r"^(Why|Do|Bad|Good):[ \n]", re.MULTILINE)


def check(code: str, level: Level, law: str) -> Callable[[Check], Check]:
    """Registers a check, whose docstring is its page. A code is never used for another check."""

    def register(run: Check) -> Check:
        if code in CHECKS:
            raise ValueError(f"code {code} is taken")
        CHECKS[code] = Entry(code=code, level=level, law=law, page=_page(code, level, law, run.__doc__ or ""), run=run)
        return run

    return register


def _page(code: str, level: Level, law: str, docstring: str) -> LintPage:
    description, *sections = _SECTION.split(cleandoc(docstring))
    parts = dict(zip(sections[::2], (cleandoc(text) for text in sections[1::2]), strict=True))
    if set(parts) != {"Why", "Do", "Bad", "Good"}:
        raise ValueError(f"the docstring of {code} needs Why, Do, Bad and Good")
    paragraphs = {name: " ".join(parts[name].split()) for name in ("Why", "Do")}
    return LintPage(
        code=code, level=level, law=law, what=" ".join(description.split()), why=paragraphs["Why"], do=paragraphs["Do"],
        bad=parts["Bad"].strip(), good=parts["Good"].strip(),
    )  # fmt: skip


def finding(
    subject: Subject,
    code: str,
    message: str,
    key_path: KeyPath = (),
    do: str = "",
    *,
    level: Level | None = None,
    key: bool = False,
    offset: int | None = None,
    fix: Fix | None = None,
) -> Diagnostic:
    """A finding at a place in the subject's file: at the value, at its key, or at a character of its text (``offset``)."""
    entry, line, column = CHECKS[code], None, None
    if subject.document:
        full_path = (FLOW_ROOT if is_flow(subject.document) else ROOT, *key_path)
        line, column = subject.document.mark(full_path, key=key, offset=offset)
    return Diagnostic(
        code=code,
        level=level or entry.level,
        message=message,
        do=do,
        path=subject.path,
        line=line,
        column=column,
        fix=fix,
    )
