"""Cards for people."""

from strategist.cards.deck import load_deck
from strategist.paths import data_dir
from strategist.report.deck import card_report, cards_report, profiles_report
from tests.report.samples import look

DECK = load_deck(data_dir("cards"))


def test_every_shipped_card_has_its_line() -> None:
    text = look(cards_report(DECK.cards), 80)
    for card in DECK.cards:
        assert card.id in text
    assert "…" not in text


def test_every_shipped_card_can_be_shown_whole() -> None:
    for card in DECK.cards:
        text = " ".join(look(card_report(card), 300).split())
        assert str(card.intent) in text
        for policy in card.policies:
            assert policy.id in text
            assert policy.when is None or policy.when.text in text
        assert card.document.path.rsplit("/", 1)[-1] in text


def test_profiles_are_listed_by_kind() -> None:
    text = look(profiles_report({"models": ("a", "b"), "devices": ("c",)}))
    assert text.split() == ["models", "a,", "b", "devices", "c"]
