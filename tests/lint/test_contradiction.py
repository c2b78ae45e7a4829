"""Contradictions have a witness: a situation in which both laws act, each permits candidates, and together none."""

from collections.abc import Iterator

import pytest

from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.files.yaml_file import parse
from strategist.lint.contradiction import Contradiction, contradictions, laws
from strategist.lint.witness import complete_facts

CARD = """\
StrategyCard:
  id: {id}
  module: tp
  intent: x
  preconditions: [{before}]
  policies:
    - {{id: law, when: '{when}', {effect}, because: x}}
"""
ALWAYS = "layout.tp >= 1"


def found(first: str, one: str, second: str, two: str, *, before: str = "") -> list[Contradiction]:
    texts = [
        CARD.format(id=name, when=when, effect=effect, before=before)
        for name, when, effect in (("A", first, one), ("B", second, two))
    ]
    deck = Deck(tuple(read_card(parse(text)) for text in texts))
    return [contradiction for card in deck.cards for contradiction in contradictions(card, deck)]


def names_dropped(contradiction: Contradiction, values: list[object]) -> Iterator[tuple[bool, bool]]:
    for value in values:
        settings = {name: shown for name, shown in contradiction.witness.items() if name != contradiction.path}
        row = complete_facts({**settings, contradiction.path: value})
        assert row is not None
        yield contradiction.first.drops(row), contradiction.second.drops(row)


@pytest.mark.parametrize(
    ("first", "one", "second", "two"),
    [
        ("layout.tp > 1", "require: {recompute: full}", "model.layers > 8", "forbid: {recompute: full}"),
        ("layout.tp > 1", "require: {recompute: full}", "model.layers > 8", "require: {recompute: [none, selective]}"),
        ("layout.tp > 1", "forbid: {sequence_parallel: true}", "model.layers > 8", "forbid: {sequence_parallel: false}"),
        ("layout.cp > 1", "require: {micro_batch: 2}", "knobs.accumulation > 2", "forbid: {micro_batch: [1, 2]}"),
        (
            "model.parameter_bytes / (layout.pp * layout.tp) > 0.5 * device.usable_memory_bytes",
            "forbid: {reshard_after_forward: [false, subgroup]}",
            "cluster.nodes > 1 and layout.fsdp_ranks > cluster.gpus_per_node",
            "forbid: {reshard_after_forward: true}",
        ),
        ('knobs.offload == "all"', "require: {recompute: full}", 'knobs.offload != "none"', "set: {recompute: none}"),
        ("layout.tp > 1", "require: {recompute: full, tp: 2}", "layout.pp > 1", "require: {recompute: none, tp: 2}"),
    ],
)  # fmt: skip
def test_a_witness_shows_the_contradiction(first: str, one: str, second: str, two: str) -> None:
    (contradiction,) = found(first, one, second, two)
    possible = [True, False] if "sequence" in one else [1, 2, 3] if "micro" in one else ["none", "selective", "full"]
    possible = [True, False, "subgroup"] if "reshard" in one else possible
    dropped = list(names_dropped(contradiction, [value for value in possible if value != "subgroup"]))
    assert all(any(pair) for pair in dropped)
    assert not all(pair[0] for pair in dropped)
    assert not all(pair[1] for pair in dropped)
    assert "both act where" in str(contradiction)


@pytest.mark.parametrize(
    ("first", "one", "second", "two"),
    [
        ("layout.tp > 1", "require: {recompute: full}", "layout.tp == 1", "forbid: {recompute: full}"),
        ("layout.tp > 1", "require: {recompute: [full, none]}", "layout.pp > 1", "forbid: {recompute: full}"),
        ("layout.tp > 1", "require: {recompute: full}", "layout.pp > 1", "forbid: {recompute: none}"),
        ("layout.tp > 1", "require: {recompute: full, offload: none}", "layout.pp > 1", "forbid: {recompute: full, offload: all}"),
        ("layout.tp > 1", "require: {recompute: full}", "layout.tp > 1", "prefer: {recompute: none}"),
        ("layout.tp > 1", "forbid: {micro_batch: 1}", "layout.pp > 1", "forbid: {micro_batch: 2}"),
        # the same knob, where a law of the stack permits only one of its values
        ("layout.tp == 1", "require: {sequence_parallel: true}", "layout.pp > 1", "forbid: {sequence_parallel: true}"),
        ("model.is_moe and model.experts == 0", "require: {recompute: full}", "layout.pp > 1", "forbid: {recompute: full}"),
        ("cluster.nodes > cluster.devices", "require: {recompute: full}", "layout.pp > 1", "forbid: {recompute: full}"),
        ('knobs.recompute == "none"', "require: {recompute: full}", 'knobs.recompute != "none"', "require: {recompute: full}"),
    ],
)
def test_compatible_laws_are_no_contradiction(first: str, one: str, second: str, two: str) -> None:
    assert found(first, one, second, two) == []


def test_laws_with_exclusive_preconditions_do_not_contradict() -> None:
    apart = found(
        "layout.tp > 1", "require: {recompute: full}", "layout.tp > 1", "forbid: {recompute: full}", before="{when: layout.tp == 1}"
    )
    assert apart == []


def test_the_witness_names_the_variables_of_both_conditions() -> None:
    (contradiction,) = found("layout.tp > 2", "require: {recompute: full}", "model.layers > 8", "forbid: {recompute: full}")
    assert set(contradiction.witness) == {"layout.tp", "model.layers"}
    assert contradiction.witness["layout.tp"] > 2
    assert contradiction.witness["model.layers"] > 8
    assert str(contradiction).startswith(
        "A/law requires knobs.recompute = full and B/law forbids knobs.recompute = full; both act where "
    )


def test_preferences_and_warnings_are_no_laws() -> None:
    card = read_card(parse(CARD.format(id="A", when="layout.tp > 1", effect="prefer: {recompute: full}, warn: true", before="")))
    assert laws(Deck((card,))) == ()
