"""Cards and flows as text."""

from strategist.cards.deck import load_deck
from strategist.cards.reader import read_card
from strategist.files.yaml_file import parse
from strategist.paths import data_dir
from strategist.report.deck import card_report, cards_report, deck_report, flow_report, profiles_report
from tests.report.samples import rendered

DECK = load_deck(data_dir("cards"))


def test_every_shipped_card_is_listed() -> None:
    text = rendered(cards_report(DECK.cards), 80)
    for card in DECK.cards:
        assert card.id in text
    assert "…" not in text


def test_every_shipped_card_is_shown_completely() -> None:
    for card in DECK.cards:
        text = " ".join(rendered(card_report(card), 300).split())
        assert str(card.intent) in text
        for policy in card.policies:
            assert policy.id in text
            assert policy.when is None or policy.when.text in text
        assert card.document.path.rsplit("/", 1)[-1] in text
        for example in card.example:
            assert " ".join(example.run.split()) in text
            assert example.refused in text
        assert f"{len(card.cases)}. " in text[text.rindex("Cases") :]


def test_cases_are_shown_with_given_and_expected_values() -> None:
    text = " ".join(rendered(card_report(DECK.card("FSDP-001")), 300).split())
    assert "1. dp_shard = 8, reshard_after_forward = false, model.parameter_bytes = 65 GB" in text
    assert "proposes reshard_after_forward = false" in text


def test_flows_are_listed_and_shown_completely() -> None:
    assert DECK.flow is not None
    assert DECK.flow.id in rendered(deck_report(DECK), 80)
    text = " ".join(rendered(flow_report(DECK.flow), 300).split())
    places = [text.index(f"{number}. {step.title}") for number, step in enumerate(DECK.flow.steps, 1)]
    assert places == sorted(places)
    for step in DECK.flow.steps:
        assert str(step.because) in text
        assert all(path.partition(".")[2] in text for path in step.decides)
        assert all(card in text for card in step.cards)


def test_a_card_of_free_text_is_called_advice() -> None:
    card = read_card(parse("StrategyCard: {id: A-1, module: tp, intent: Why, policies: [Do it well.]}"))
    assert "advice" in rendered(cards_report([card]), 80)
    assert "advice: Do it well." in rendered(card_report(card), 80)


def test_profiles_are_listed_by_kind() -> None:
    text = rendered(profiles_report({"models": ("a", "b"), "devices": ("c",)}))
    assert text.split() == ["models", "a,", "b", "devices", "c"]
