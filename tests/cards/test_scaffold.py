"""A new card of any module has effects and no findings."""

from pathlib import Path

import pytest

from strategist.cards.card import Status
from strategist.cards.deck import load_deck
from strategist.cards.reader import read_card
from strategist.cards.scaffold import scaffold
from strategist.errors import FileError, InputError
from strategist.files import yaml_file
from strategist.lint.run import lint
from strategist.paths import data_dir

SHIPPED = data_dir("cards")
DECK = load_deck(SHIPPED)
PREFIXES = {card.id.partition("-")[0]: card.module for card in DECK.cards}


@pytest.mark.parametrize("prefix", [*PREFIXES, "ACME"])
def test_a_new_card_of_each_module_acts_and_has_no_findings(tmp_path: Path, prefix: str) -> None:
    path = scaffold(f"{prefix}-901", tmp_path, deck=DECK, schema=SHIPPED)
    card = read_card(yaml_file.load(path))
    assert (card.id, card.status, card.module) == (f"{prefix}-901", Status.PREVIEW, PREFIXES.get(prefix, "acme"))
    assert card.acts
    assert len(card.cases) == 2
    assert lint([path]) == ()


def test_module_and_title_are_used_unchanged(tmp_path: Path) -> None:
    title = 'Say: "no" # to all'
    path = scaffold("TP-901", tmp_path / "deep" / "er", deck=DECK, schema=SHIPPED, module="my own: part", title=title)
    card = read_card(yaml_file.load(path))
    assert (path.name, card.module, str(card.title)) == ("TP-901-say-no-to-all.yaml", "my own: part", title)


def test_the_schema_path_is_relative_to_the_card(tmp_path: Path) -> None:
    path = scaffold("TP-901", tmp_path / "a" / "b", deck=DECK, schema=SHIPPED)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    relative = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / relative).resolve() == (SHIPPED / "schema" / "strategy-card.schema.json").resolve()


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = scaffold("TP-901", tmp_path, deck=DECK, schema=SHIPPED)
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(FileError, match="is there already"):
        scaffold("TP-901", tmp_path, deck=DECK, schema=SHIPPED)
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("card_id", ["", "../TP-901", "TP 901", "TP/901", "-TP", "TP-", "9"])
def test_an_id_has_letters_digits_and_dashes_only(tmp_path: Path, card_id: str) -> None:
    with pytest.raises(InputError, match="letters, digits and dashes"):
        scaffold(card_id, tmp_path, deck=DECK, schema=SHIPPED)
    assert not list(tmp_path.iterdir())
