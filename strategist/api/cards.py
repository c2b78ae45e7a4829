"""API of cards: load, lint, fix, test, scaffold, reference pages. Exported by ``strategist.api``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from strategist.cards.card import ENGLISH, Card
from strategist.cards.deck import Deck, load_deck
from strategist.cards.flow import Flow
from strategist.errors import InputError, did_you_mean, not_among
from strategist.paths import data_dir

if TYPE_CHECKING:
    from strategist.contract.card_example import CardTest
    from strategist.contract.diagnostic import Diagnostic
    from strategist.contract.listings import ListedCard
    from strategist.executors.card_tests import OnCard
    from strategist.lint.fix import Repair
    from strategist.lint.registry import Entry

Folders = Sequence[str | Path]
"""Folders of cards, or names of decks that installed packages provide."""

Value = TypeVar("Value")

Ids = Sequence[str]
"""Ids of cards to leave out."""


def load_cards(folders: Folders = (), without: Ids = ()) -> Deck:
    """The shipped cards and those in ``folders``, except those ``without``. A card with the id of an earlier one replaces it.

    Raises:
        InputError: a name is neither a folder nor a deck, or a card to leave out does not exist.
        FileError: a folder or file cannot be read, or is not a card.
    """
    deck = load_deck(data_dir("cards"), *map(_folder, folders))
    for card_id in dict.fromkeys(without):
        deck = deck.without(card_id)
    return deck


def in_language(value: Value, language: str, *, cards: Folders = ()) -> Value:
    """The value (an answer, a report, a deck) with the texts of cards in ``language``, en or zh; nothing else changes.

    Raises:
        InputError, FileError: as :func:`load_cards`.
    """
    if language == ENGLISH:
        return value
    from strategist.cards import translations

    deck = value if isinstance(value, Deck) else load_cards(cards)
    return translations.in_language(value, deck, language)


def listed_cards(deck: Deck) -> "tuple[ListedCard, ...]":
    """The cards and flows of a deck, as rows of a list."""
    from strategist.contract.listings import ListedCard

    cards = (
        ListedCard(
            id=card.id, kind="card" if card.acts else "advice", module=card.module, status=card.status,
            title=str(card.title or card.intent), file=card.document.path,
        )
        for card in deck.cards
    )  # fmt: skip
    flows = (
        ListedCard(id=flow.id, kind="flow", title=str(flow.title or flow.intent), file=flow.document.path) for flow in deck.flows
    )
    return (*cards, *flows)


def not_as_shipped(deck: Deck, without: Ids = ()) -> tuple[str, ...]:
    """Differences of the deck from the shipped one, in words: one text for each added, replaced or omitted card, with its file."""
    shipped = data_dir("cards")
    items: tuple[Card | Flow, ...] = (*deck.cards, *deck.flows)
    files = {item.id: item.document.path for item in items}
    added = {key: file for key, file in files.items() if not Path(file).is_relative_to(shipped)}
    replacement_note = {key: f", in place of {deck.replaced[key]}" if key in deck.replaced else "" for key in added}
    return (
        *(f"{key} comes from {file}{replacement_note[key]}" for key, file in added.items()),
        *(f"{key} is left out" for key in dict.fromkeys(without)),
    )


def lint(paths: Folders = (), *, look_up_sources: bool = False, run_examples: bool = False) -> "tuple[Diagnostic, ...]":
    """Findings about the cards and flows in files and folders; about the shipped ones if none are given.

    Args:
        look_up_sources: also looks up the sources of the cards in the installed torch; see :func:`torch_installed`.
        run_examples: also runs their examples, which are untrusted programs: only on a user's explicit request, never for agents.

    Raises:
        InputError: torch is needed for one of these but is missing or broken.
    """
    from strategist.lint.run import cards_in, lint as lint_deck

    targets = paths or [data_dir("cards")]
    environment = None
    if look_up_sources or run_examples:
        from strategist.executors.lint_environment import inspect_environment

        environment = inspect_environment(cards_in(targets), look_up_sources=look_up_sources, run_the_examples=run_examples)
    return lint_deck(targets, environment, base_deck=load_cards() if paths else Deck(()))


def torch_installed() -> bool:
    """Whether torch and strategist's runtime are installed, so that sources can be looked up and plans can run."""
    from strategist.executors import requirements

    return requirements.torch_installed()


def fix_cards(paths: Folders, codes: frozenset[str], *, write: bool) -> "tuple[Repair, ...]":
    """Safe corrections of findings with these ``codes`` in files of cards and flows. Applies them only with ``write``.

    Raises:
        FileError: a path cannot be read or written.
    """
    from strategist.lint import fix

    repairs = tuple(fix.repairs(paths, codes))
    for repair in repairs if write else ():
        fix.write(repair)
    return repairs


def lint_checks() -> "tuple[Entry, ...]":
    """All checks of the linter, in order of their codes."""
    from strategist.lint.checks.all import RULES

    return RULES


def lint_check(code: str) -> "Entry":
    """The check with this code.

    Raises:
        InputError: there is no such check.
    """
    checks = {entry.code: entry for entry in lint_checks()}
    if code.upper() not in checks:
        do = f"{did_you_mean(code, checks, cutoff=0)} strategist cards explain lists all"
        raise InputError(f"code {code}", "is not a check of the linter", do)
    return checks[code.upper()]


def lint_codes(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> frozenset[str]:
    """Codes that begin with one of ``select`` (default: all codes) and with none of ``ignore``.

    Raises:
        InputError: no code begins with one of these words.
    """
    codes = [entry.code for entry in lint_checks()]
    for word in (*select, *ignore):
        if not any(code.startswith(word.upper()) for code in codes):
            lint_check(word)
    selected, ignored = (tuple(word.upper() for word in words) for words in (select, ignore))
    return frozenset(
        code for code in codes if (not selected or code.startswith(selected)) and not (ignored and code.startswith(ignored))
    )


def run_card_tests(
    targets: Folders = (), *, cards: Folders = (), timeout_seconds: float = 60.0, on_card: "OnCard | None" = None
) -> "tuple[CardTest, ...]":
    """Runs the test cases and the example programs of cards, given by file, folder or id; of all cards if none are given.

    The example programs run unmodified: only on a user's explicit request, never for agents.

    Args:
        targets: files, folders or ids of cards.
        cards: folders of cards beside the shipped ones.
        timeout_seconds: limit of each example.
        on_card: called with the result of each card when its last example has ended.

    Raises:
        InputError, FileError: a target is not a card, or torch is missing for an example.
    """
    from strategist.executors.card_tests import run_tests

    return run_tests(_cards_of(targets, load_cards(cards)), timeout_seconds=timeout_seconds, on_card=on_card)


def new_card(
    card_id: str, folder: str | Path, *, module: str = "", title: str = "", cards: Folders = (), force: bool = False
) -> Path:
    """Writes a template of a card into ``folder`` and returns its path.

    Args:
        module: the card's module; by default that of cards whose ids begin alike.
        force: overwrites an existing file.

    Raises:
        InputError: the id is not valid.
        FileError: the card's file exists and ``force`` is not set, or the folder cannot be written.
    """
    from strategist.cards.scaffold import scaffold

    deck, schema = load_cards(cards), data_dir("cards")
    return scaffold(card_id, Path(folder), deck=deck, schema=schema, module=module, title=title, force=force)


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of card files (``card``) or flow files (``flow``); the same file lies beside the shipped cards.

    Raises:
        InputError: there is no such kind.
    """
    from strategist.cards.schema import SCHEMAS

    if kind not in SCHEMAS:
        raise not_among(f"schema {kind}", kind, SCHEMAS, "is not a kind of file")
    return SCHEMAS[kind]()


def reference(*, cards: Folders = ()) -> dict[str, str]:
    """Markdown pages on all cards, flows, settings, vocabulary names and linter codes, by their paths."""
    from strategist.report.reference.pages import reference as pages

    return pages(load_cards(cards), lint_checks())


def write_reference(folder: str | Path, *, cards: Folders = (), force: bool = False) -> tuple[int, int]:
    """Writes the reference into a folder. Returns the number of pages, and of removed pages of an earlier version.

    Raises:
        FileError: a card cannot be read, or a page cannot be written.
    """
    from strategist.report.reference.pages import write

    pages = reference(cards=cards)
    return len(pages), len(write(pages, Path(folder), force=force))


def _folder(name: str | Path) -> Path:
    from strategist.cards.installed_decks import deck_folder

    return deck_folder(name)


def _cards_of(targets: Folders, deck: Deck) -> Sequence[Card]:
    """The cards given by file, folder or id; all cards of the deck if none are given."""
    from strategist.cards.reader import read_card
    from strategist.files.yaml_file import load

    chosen: list[Card] = [] if targets else list(deck.cards)
    for target in targets:
        path = Path(target)
        if path.suffix == ".yaml":
            chosen.append(read_card(load(path)))
        elif path.is_dir() or len(path.parts) > 1:
            chosen += load_deck(path).cards
        else:
            chosen.append(deck.card(str(target)))
    return chosen
