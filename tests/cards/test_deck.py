"""Decks: order of cards, replacement, digests."""

from pathlib import Path

import pytest

from strategist.cards.deck import load_deck
from strategist.errors import FileError, InputError
from strategist.paths import data_dir


def write(folder: Path, name: str, card_id: str, intent: str = "Why", comment: str = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{comment}StrategyCard:\n  id: {card_id}\n  module: tp\n  intent: {intent}\n", encoding="utf-8")
    return path


def test_cards_are_sorted_by_id_and_found_below_the_folder(tmp_path: Path) -> None:
    write(tmp_path, "b/one.yaml", "A-2")
    write(tmp_path, "a/two.yaml", "B-1")
    write(tmp_path, "c/deep/three.yaml", "A-1")
    deck = load_deck(tmp_path)
    assert [card.id for card in deck.cards] == ["A-1", "A-2", "B-1"]
    assert deck.card("A-2").document.path.endswith("one.yaml")
    assert [card.id for card in deck.without("A-2").cards] == ["A-1", "B-1"]
    with pytest.raises(InputError, match="card A-3"):
        deck.without("A-3")


def test_a_later_folder_replaces_cards_and_ids_are_unique_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "ours", "a.yaml", "A-1", "ours")
    write(tmp_path / "mine", "z.yaml", "A-1", "mine")
    assert str(load_deck(tmp_path / "ours", tmp_path / "mine").card("A-1").intent) == "mine"
    write(tmp_path / "mine", "zz.yaml", "A-1")
    with pytest.raises(FileError, match="id A-1 is taken by"):
        load_deck(tmp_path / "mine")


def test_the_digest_depends_only_on_the_content(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", "A-1")
    first = load_deck(tmp_path).digest
    assert len(first) == 16
    write(tmp_path, "a.yaml", "A-1", comment="# a comment\n\n")
    assert load_deck(tmp_path).digest == first
    path.rename(tmp_path / "b.yaml")
    assert load_deck(tmp_path).digest == first
    write(tmp_path, "b.yaml", "A-1", "Another")
    assert load_deck(tmp_path).digest != first


def test_the_digest_does_not_depend_on_the_protocol_line(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "A-1")
    first = load_deck(tmp_path).digest
    write(tmp_path, "a.yaml", "A-1", comment="protocol: 1\n")
    assert load_deck(tmp_path).digest == first


def test_the_last_of_three_folders_wins_and_names_the_replaced_card(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, f"{name}.yaml", "A-1", name) for name in ("ours", "mine", "yours")]
    deck = load_deck(*(path.parent for path in paths))
    assert str(deck.card("A-1").intent) == "yours"
    assert deck.replaced == {"A-1": str(paths[1])}


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="not a folder of cards"):
        load_deck(tmp_path / "nowhere")


def test_removing_a_card_changes_the_digest() -> None:
    deck = load_deck(data_dir("cards"))
    assert len({deck.digest, *(deck.without(card.id).digest for card in deck.cards)}) == len(deck.cards) + 1


def test_a_folder_without_cards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "card.txt").write_text("StrategyCard: {}", encoding="utf-8")
    with pytest.raises(FileError, match="holds no card"):
        load_deck(tmp_path)


def test_yaml_and_yml_files_are_read(tmp_path: Path) -> None:
    for name, number in (("a.yaml", 1), ("b.yml", 2)):
        (tmp_path / name).write_text(f"StrategyCard: {{id: A-{number}, module: tp, intent: a}}", encoding="utf-8")
    assert [card.id for card in load_deck(tmp_path).cards] == ["A-1", "A-2"]


def test_only_changed_files_are_read_again(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "A-1")
    write(tmp_path, "b.yaml", "B-1")
    before = load_deck(tmp_path)
    write(tmp_path, "b.yaml", "B-1", "otherwise")
    after = load_deck(tmp_path)
    assert after.card("A-1") is before.card("A-1")
    assert after.card("B-1") != before.card("B-1")
