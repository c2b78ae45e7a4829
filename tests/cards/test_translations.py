"""Translation of cards' texts wherever they are shown; everything else is unchanged."""

from dataclasses import dataclass

from strategist.cards.card import Text
from strategist.cards.deck import Deck, load_deck
from strategist.cards.reader import read_card
from strategist.cards.translations import in_language
from strategist.contract.plan import Reason
from strategist.files.yaml_file import parse
from strategist.paths import data_dir

CARD = """\
StrategyCard:
  id: A-1
  title: {en: Slow links, zh: 慢速链路}
  module: tp
  intent: In English only.
  risks: [{id: r, text: {en: It waits., zh: 会等待。}}]
  policies:
    - {id: p, warn: true, because: {en: It waits. Twice., zh: 会等待两次。}}
    - {id: q, warn: true, because: Not translated.}
"""
DECK = Deck((read_card(parse(CARD, "card.yaml")),))


@dataclass(frozen=True)
class Shown:
    """A value with nested texts."""

    reasons: tuple[Reason, ...]
    notes: list[str]
    figures: dict[str, object]


def reason_with(text: str) -> Reason:
    return Reason(card="A-1", policy="p", effect="warn", text=text)


def test_a_text_is_translated_at_any_depth() -> None:
    shown = Shown(
        reasons=(reason_with("It waits."), reason_with("Other.")),
        notes=["Slow links"],
        figures={"why": ["It waits. Twice."], "n": 1},
    )
    expected = Shown(
        reasons=(reason_with("会等待。"), reason_with("Other.")), notes=["慢速链路"], figures={"why": ["会等待两次。"], "n": 1}
    )
    assert in_language(shown, DECK, "zh") == expected


def test_a_reason_within_a_sentence_is_translated_longest_first() -> None:
    assert (
        in_language("A-1/p rules it out: It waits. Twice. Here tp is 8.", DECK, "zh")
        == "A-1/p rules it out: 会等待两次。 Here tp is 8."
    )
    assert in_language("It waits. Fallback: tp = 1.", DECK, "zh") == "会等待。 Fallback: tp = 1."


def test_a_title_within_a_message_is_not_translated() -> None:
    assert in_language("Slow links are here", DECK, "zh") == "Slow links are here"


def test_untranslated_texts_stay_english() -> None:
    for text in ("In English only.", "Not translated."):
        assert in_language(text, DECK, "zh") == text


def test_an_unchanged_value_is_the_same_object() -> None:
    shown = Shown(reasons=(reason_with("Other."),), notes=["x"], figures={"why": [1, 2]})
    assert in_language(shown, DECK, "zh") is shown


def test_a_translated_deck_keeps_its_files_and_digests() -> None:
    deck = load_deck(data_dir("cards"))
    translated = in_language(deck, deck, "zh")
    card = deck.card("FSDP-001")
    assert str(translated.card("FSDP-001").title) == card.title.zh
    assert [str(policy.because) for policy in translated.card("FSDP-001").policies] == [
        policy.because.zh for policy in card.policies
    ]
    assert translated.card("FSDP-001").document is card.document
    assert translated.explanation_digest == deck.explanation_digest


def test_a_text_in_one_language_is_shown_in_this_language() -> None:
    assert Text(zh="慢").show("en") == "慢"
    assert Text(en="Slow").show("zh") == "Slow"
