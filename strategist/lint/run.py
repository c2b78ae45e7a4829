"""Runs every check over a deck or over files of cards and flows."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from strategist.cards.card import Card
from strategist.cards.deck import Deck, card_files
from strategist.cards.field_reader import UNREADABLE
from strategist.cards.flow import Flow, is_flow
from strategist.cards.flow_reader import inspect_flow
from strategist.cards.reader import inspect
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.progress import counted
from strategist.errors import FileError
from strategist.files.yaml_file import Document, load, parse
from strategist.lint.checks.all import RULES
from strategist.lint.environment import LintEnvironment
from strategist.lint.registry import CHECKS, Subject

NO_CARDS = Deck(())


def lint(
    deck_or_paths: Deck | Iterable[str | Path], environment: LintEnvironment | None = None, *, base_deck: Deck = NO_CARDS
) -> tuple[Diagnostic, ...]:
    """All findings on a deck, or on the given files and folders; in order of files, then of lines.

    base_deck: cards in force that are not checked themselves, such as the shipped ones.
    environment: facts from outside of the files; checks that need it are skipped without it.
    """
    subjects = _subjects_of_deck(deck_or_paths) if isinstance(deck_or_paths, Deck) else _subjects_of_paths(deck_or_paths)
    return _findings(_with_relations(list(subjects), base_deck), environment)


def lint_text(path: str, text: str) -> tuple[Diagnostic, ...]:
    """All findings on a file with this text, without other files."""
    try:
        subject = _subject_of_document(path, parse(text, path))
    except FileError as error:
        subject = Subject(path=path, findings=(_unreadable_finding(error),))
    return _findings(_with_relations([subject], NO_CARDS), None)


def cards_in(paths: Iterable[str | Path]) -> tuple[Card, ...]:
    """The cards in files and folders, as far as each can be read."""
    return tuple(subject.card for subject in _subjects_of_paths(paths) if subject.card)


def _findings(subjects: Iterable[Subject], environment: LintEnvironment | None) -> tuple[Diagnostic, ...]:
    """Findings of all checks, each with advice."""
    found: list[Diagnostic] = []
    for subject in counted(tuple(subjects), "cards and flows"):
        subject_findings = (finding for rule in RULES for finding in rule.run(replace(subject, environment=environment)))
        found += sorted(subject_findings, key=lambda finding: (finding.line or 0, finding.column or 0))
    return tuple(finding if finding.do else replace(finding, do=CHECKS[finding.code].page.do) for finding in found)


def _subjects_of_deck(deck: Deck) -> Iterator[Subject]:
    """Subjects of a deck that was read before; cards that it replaced are not checked."""
    for card in deck.cards:
        yield Subject(path=card.document.path, document=card.document, card=card, replaces=deck.replaced.get(card.id, ""))
    for flow in deck.flows:
        yield Subject(path=flow.document.path, document=flow.document, flow=flow, replaces=deck.replaced.get(flow.id, ""))


def _subjects_of_paths(paths: Iterable[str | Path]) -> Iterator[Subject]:
    for path in map(Path, paths):
        try:
            for file in card_files(path) if path.is_dir() else [path]:
                yield replace(_subject_of_file(file), folder=str(path if path.is_dir() else path.parent))
        except FileError as error:
            yield Subject(path=str(path), findings=(_unreadable_finding(error),))


def _subject_of_file(path: Path) -> Subject:
    try:
        return _subject_of_document(str(path), load(path))
    except FileError as error:
        return Subject(path=str(path), findings=(_unreadable_finding(error),))


def _subject_of_document(path: str, document: Document) -> Subject:
    if is_flow(document):
        flow, findings = inspect_flow(document)
        return Subject(path=path, document=document, flow=flow, findings=findings)
    card, findings = inspect(document)
    return Subject(path=path, document=document, card=card, findings=findings)


def _unreadable_finding(error: FileError) -> Diagnostic:
    level = CHECKS[UNREADABLE].level
    return Diagnostic(code=UNREADABLE, level=level, message=error.message, path=error.path, line=error.line, column=error.column)


def _with_relations(subjects: list[Subject], base_deck: Deck) -> Iterator[Subject]:
    """The subjects with their relations. An equal id in another folder replaces the card; in the same folder it is a fault."""
    paths_by_id: dict[tuple[str, str], str] = {}
    latest: dict[str, Card | Flow] = {card.id: card for card in base_deck.cards} | {flow.id: flow for flow in base_deck.flows}
    related = []
    for subject in subjects:
        item = subject.card or subject.flow
        if item is not None:
            first_path, known_item = paths_by_id.setdefault((subject.folder, item.id), subject.path), latest.get(item.id)
            id_holder = first_path if first_path != subject.path else ""
            replaced_path = (
                known_item.document.path
                if known_item and not id_holder and Path(known_item.document.path).resolve() != Path(subject.path).resolve()
                else ""
            )
            subject = replace(subject, id_holder=id_holder, replaces=replaced_path or subject.replaces)
            if not subject.findings and not id_holder:
                latest[item.id] = item
        related.append(subject)
    cards = sorted((item for item in latest.values() if isinstance(item, Card)), key=lambda card: card.id)
    known = frozenset(card.id for card in cards) | {subject.card.id for subject in subjects if subject.card}
    return (replace(subject, deck=Deck(tuple(cards)), known_ids=known) for subject in related)
