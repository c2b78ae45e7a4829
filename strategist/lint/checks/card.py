"""Checks of a card's id, file name, status and required entries."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strategist.cards.card import ROOT
from strategist.cards.field_reader import NEWEST
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.lint import text_edits
from strategist.lint.registry import Subject, check, finding

_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RELEASE = re.compile(r"[0-9]+(\.[0-9]+){1,2}")


@check("CARD010", Level.ERROR, "A stable card acts, and has a title and a source.")
def stable_card_is_complete(subject: Subject) -> Iterator[Diagnostic]:
    """A stable card has no policy with an effect, no title, or no source.

    Why: Users rely on stable cards: such a card needs an effect, a name, and a source to check it by.
    Do: add what is missing, or make it a preview
    Bad:
        status: stable
        policies: [Use full recompute when memory is short.]
    Good:
        status: stable
        policies: [{id: full-when-short, when: ..., prefer: {recompute: full}, because: ...}]
    """
    card = subject.stable
    if card and not card.acts:
        message = f"stable card {card.id} is text only"
        yield finding(subject, "CARD010", message, do="give a policy an effect, or make it a preview")
    for name in ("title", "source_refs") if card else ():
        if not getattr(card, name):
            yield finding(subject, "CARD010", f"a stable card has no {name}", do=f"add {name}:")


@check("CARD019", Level.ERROR, "A risk id names one risk of a card, and no policy.")
def risk_ids_are_unique(subject: Subject) -> Iterator[Diagnostic]:
    """Two risks of a card, or a risk and a policy, have the same id.

    Why: Reasons name a policy by its id alone, and cases expect it by id.
    Do: give the risk its own id
    Bad:
        risks: [{id: memory, ...}, {id: memory, ...}]
    Good:
        risks: [{id: memory-of-logits, ...}, {id: memory-of-states, ...}]
    """
    card = subject.sound
    ids = {policy.id for policy in card.policies} if card else set()
    for index, risk in enumerate(card.risks if card else ()):
        if risk.id in ids:
            yield finding(subject, "CARD019", f"risk id {risk.id} is taken in this card", ("risks", index, "id"))
        ids.add(risk.id)


@check("CARD020", Level.WARNING, "A file is named after its card, and its folder after the module.")
def file_has_card_id(subject: Subject) -> Iterator[Diagnostic]:
    """The file's name does not begin with the card's id, or the file is in a subfolder that is not named after the card's module.

    Why: Cards are looked up by id and module; <module>/<ID>-<name>.yaml is found without a search.
    Do: name the file <ID>-<what it says>.yaml in the folder <module>, or change id and module
    Bad:
        tp/sequence.yaml with id: TP-001
    Good:
        tp/TP-001-sequence-parallel.yaml with id: TP-001
    """
    card, path = subject.card, Path(subject.path)
    if card is None or not subject.document or "id" not in subject.document.data[ROOT]:
        return
    if path.stem != card.id and not path.stem.startswith(f"{card.id}-"):
        yield finding(subject, "CARD020", f"file {path.name} is not named after card {card.id}", ("id",))
    in_subfolder = subject.folder and path.parent != Path(subject.folder)
    if in_subfolder and path.parent.name != card.module:
        message = f"card {card.id} of module {card.module} lies in folder {path.parent.name}"
        yield finding(subject, "CARD020", message, ("module",))


@check("CARD021", Level.WARNING, "The id of a policy or a risk is in kebab-case.")
def ids_are_kebab_case(subject: Subject) -> Iterator[Diagnostic]:
    """The id of a policy or a risk has characters other than lower-case letters, digits and single hyphens.

    Why: Ids occur in reasons, commands and addresses of pages; this form needs no quotes anywhere.
    Do: write it like free-when-memory-is-short
    Bad:
        id: Free_When_Short
    Good:
        id: free-when-memory-is-short
    """
    card = subject.sound
    for section in ("policies", "risks") if card else ():
        for index, entry in enumerate(getattr(card, section)):
            if not _KEBAB.fullmatch(entry.id):
                yield finding(subject, "CARD021", f"id {entry.id} is not in kebab-case", (section, index, "id"))


@check("CARD022", Level.WARNING, "since is the release that the card came with.")
def since_is_a_release(subject: Subject) -> Iterator[Diagnostic]:
    """The field since is not a release number.

    Why: It shows which releases have the card; only release numbers can be compared.
    Do: write the release in quotes, such as "0.1"
    Bad:
        since: last spring
    Good:
        since: "0.1"
    """
    card = subject.sound
    if card and card.since and not _RELEASE.fullmatch(card.since):
        yield finding(subject, "CARD022", f"since {card.since} is not a release number", ("since",))


@check("CARD045", Level.INFO, "A file states its protocol version.")
def protocol(subject: Subject) -> Iterator[Diagnostic]:
    """The file has no field protocol; it is read as protocol 1.

    Why: Later versions of strategist read an older file according to its protocol.
    Do: write protocol: 1 above StrategyCard
    Bad:
        StrategyCard: {id: TP-001, ...}
    Good:
        protocol: 1
        StrategyCard: {id: TP-001, ...}
    """
    data = subject.document.data if subject.document else None
    if subject.document and isinstance(data, dict) and "protocol" not in data and (subject.card or subject.flow):
        fix = text_edits.line_before(subject.document, (next(iter(data)),), f"protocol: {NEWEST}")
        yield finding(subject, "CARD045", "the file names no protocol", key=True, fix=fix)


@check("CARD046", Level.INFO, "A card states its maturity.")
def status(subject: Subject) -> Iterator[Diagnostic]:
    """The card has no field status; it counts as a preview.

    Why: More checks apply to stable cards, and readers must see which cards are stable.
    Do: write status: preview, or status: stable if the card has effects and is tested
    Bad:
        id: TP-001
    Good:
        id: TP-001
        status: preview
    """
    if subject.card and subject.document and "status" not in subject.document.data[ROOT]:
        fix = text_edits.line_before(subject.document, (ROOT, "module"), "status: preview")
        yield finding(subject, "CARD046", f"card {subject.card.id} has no status", fix=fix)


@check("CARD047", Level.WARNING, "No entry occurs twice in a list.")
def entries_are_unique(subject: Subject) -> Iterator[Diagnostic]:
    """An entry of a section equals an earlier one.

    Why: It adds nothing, and a later edit may change only one of the two.
    Do: remove it
    Bad:
        source_refs: [{url: "https://arxiv.org/abs/1604.06174"}, {url: "https://arxiv.org/abs/1604.06174"}]
    Good:
        source_refs: [{url: "https://arxiv.org/abs/1604.06174"}]
    """
    card = subject.document.data.get(ROOT) if subject.document and isinstance(subject.document.data, dict) else None
    for name, entries in card.items() if subject.document and isinstance(card, dict) else ():
        for index in _repeated_indices(entries):
            fix = text_edits.without_entry(subject.document, (ROOT, name, index)) if subject.document else None
            yield finding(subject, "CARD047", f"{name} has this entry already", (name, index), fix=fix)


def _repeated_indices(entries: Any) -> Iterator[int]:
    """Indices of list entries that equal an earlier one, types included."""
    if isinstance(entries, list):
        representations: set[str] = set()
        for index, entry in enumerate(entries):
            if repr(entry) in representations:
                yield index
            representations.add(repr(entry))
