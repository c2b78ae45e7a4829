"""Runs every check over a deck or over card files."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from strategist.cards.deck import Deck, card_files
from strategist.cards.reader import inspect
from strategist.cards.reading import UNREADABLE
from strategist.diagnostic import Diagnostic, Level
from strategist.errors import FileError
from strategist.lint.checks import RULES
from strategist.lint.registry import Subject
from strategist.yamlfile import load


def lint(deck_or_paths: Deck | Iterable[str | Path]) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a deck, or with the card files and folders given; in order of files and codes."""
    subjects = _of_deck(deck_or_paths) if isinstance(deck_or_paths, Deck) else _of_paths(deck_or_paths)
    return tuple(found for subject in _related(list(subjects)) for rule in RULES for found in rule.run(subject))


def _of_deck(deck: Deck) -> Iterator[Subject]:
    return (Subject(path=card.document.path, document=card.document, card=card) for card in deck.cards)


def _of_paths(paths: Iterable[str | Path]) -> Iterator[Subject]:
    for path in map(Path, paths):
        try:
            for file in card_files(path) if path.is_dir() else [path]:
                yield replace(_of_file(file), folder=str(path))
        except FileError as error:
            yield Subject(path=str(path), findings=(_unreadable(error),))


def _of_file(path: Path) -> Subject:
    try:
        document = load(path)
    except FileError as error:
        return Subject(path=str(path), findings=(_unreadable(error),))
    card, findings = inspect(document)
    return Subject(path=str(path), document=document, card=card, findings=findings)


def _unreadable(error: FileError) -> Diagnostic:
    return Diagnostic(
        code=UNREADABLE, level=Level.ERROR, message=error.message, path=error.path, line=error.line, column=error.column
    )


def _related(subjects: list[Subject]) -> Iterator[Subject]:
    """The subjects with what each must know of the others. Across folders an equal id replaces, inside one it is a fault."""
    first: dict[tuple[str, str], str] = {}
    for subject in subjects:
        if subject.card:
            first.setdefault((subject.folder, subject.card.id), subject.path)
    known = frozenset(card_id for _, card_id in first)
    for subject in subjects:
        holder = first[subject.folder, subject.card.id] if subject.card else subject.path
        yield replace(subject, known_ids=known, taken=holder if holder != subject.path else "")
