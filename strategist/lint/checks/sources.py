"""Checks of a card's sources, evidence and interactions with other cards."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from strategist.contract.diagnostic import Diagnostic, Level
from strategist.expr.vocabulary import near_miss
from strategist.lint.registry import Subject, check, finding


@check("CARD015", Level.WARNING, "An interaction names a card of the deck.")
def interactions(subject: Subject) -> Iterator[Diagnostic]:
    """An interaction names a card that the deck does not have.

    Why: The other card was renamed or never written, and the reference leads nowhere.
    Do: write the id of a card of the deck
    Bad:
        interactions: [{card: TP-01, text: ...}]
    Good:
        interactions: [{card: TP-001, text: ...}]
    """
    for index, interaction in enumerate(subject.sound.interactions if subject.sound else ()):
        if interaction.card not in subject.known_ids:
            message = f"there is no card {interaction.card}{near_miss(interaction.card, subject.known_ids)}"
            yield finding(subject, "CARD015", message, ("interactions", index))


@check("CARD040", Level.INFO, "Cards that bear on each other say so on both sides, and none bears on itself.")
def interactions_are_mutual(subject: Subject) -> Iterator[Diagnostic]:
    """An interaction names its own card (a warning), or a card that does not name this one (information).

    Why: A reader of the other card finds this one only if that card names it.
    Do: add the interaction to the other card as well, or drop it
    Bad:
        id: TP-001
        interactions: [{card: TP-001, text: ...}]
    Good:
        id: TP-001
        interactions: [{card: TP-002, text: ...}]   # and TP-002 names TP-001
    """
    card = subject.sound
    for index, interaction in enumerate(card.interactions if card else ()):
        other = subject.others.get(interaction.card)
        if card and interaction.card == card.id:
            message = f"card {card.id} names itself"
            yield finding(subject, "CARD040", message, ("interactions", index), "name the other card", level=Level.WARNING)
        elif card and other and all(interaction_back.card != card.id for interaction_back in other.interactions):
            message = f"card {other.id} does not name {card.id} in return"
            yield finding(subject, "CARD040", message, ("interactions", index))


@check("CARD023", Level.WARNING, "Evidence states its source.")
def evidence_sourced(subject: Subject) -> Iterator[Diagnostic]:
    """An entry of evidence has no source.

    Why: A figure without a source cannot be checked or measured again.
    Do: write {text: ..., source: ...} with an address, a file of measurements, or a report
    Bad:
        evidence: [It was 12 % faster.]
    Good:
        evidence: [{text: 12 % faster on 8 A100, source: "https://arxiv.org/abs/2205.05198"}]
    """
    for index, claim in enumerate(subject.sound.evidence if subject.sound else ()):
        if not claim.source:
            yield finding(subject, "CARD023", "evidence without a source", ("evidence", index))


@check("CARD024", Level.WARNING, "A source names a symbol of torch or an address.")
def source_named(subject: Subject) -> Iterator[Diagnostic]:
    """A source that is a mapping names neither a symbol nor an address; or it has a parameter and no symbol.

    Why: There is nothing to look up, and nothing whose changes could be detected.
    Do: add symbol: or url:
    Bad:
        source_refs: [{parameter: sequence_dim}]
    Good:
        source_refs: [{symbol: torch.distributed.tensor.parallel.SequenceParallel, parameter: sequence_dim}]
    """
    for index, ref in enumerate(subject.sound.source_refs if subject.sound else ()):
        entry = subject.sound.document.data["StrategyCard"]["source_refs"][index] if subject.sound else ""
        if isinstance(entry, dict) and not ref.symbol and (ref.parameter or not ref.url):
            message = f"parameter {ref.parameter} of no symbol" if ref.parameter else "a source without symbol and url"
            yield finding(subject, "CARD024", message, ("source_refs", index))


@check("CARD026", Level.WARNING, "An address is one of http or https.")
def addresses(subject: Subject) -> Iterator[Diagnostic]:
    """The url of a source, or a source of evidence that looks like an address, is not a http or https address.

    Why: Pages, reports and annotations show it as a link.
    Do: write the full address, such as https://arxiv.org/abs/2205.05198
    Bad:
        url: arxiv.org/abs/2205.05198
    Good:
        url: https://arxiv.org/abs/2205.05198
    """
    card = subject.sound
    for index, ref in enumerate(card.source_refs if card else ()):
        if ref.url and not _is_address(ref.url):
            yield finding(subject, "CARD026", f"{ref.url} is not a http address", ("source_refs", index, "url"))
    for index, claim in enumerate(card.evidence if card else ()):
        if "://" in claim.source and not _is_address(claim.source):
            yield finding(subject, "CARD026", f"{claim.source} is not a http address", ("evidence", index, "source"))


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text.split()[0] if text.split() else "")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
