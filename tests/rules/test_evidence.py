"""Which policies measured trials confirm or contradict."""

from typing import Any

from strategist import yamlfile
from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.expr.columns import row_of
from strategist.rules.evidence import Evidence, Trial, evidence


def deck(effect: str) -> Deck:
    text = "StrategyCard:\n  id: A-1\n  module: tp\n  intent: a\n  policies:\n"
    return Deck(
        (read_card(yamlfile.parse(f"{text}    - id: p\n      when: model.layers > 4\n      {effect}\n      because: b\n")),)
    )


def trial(
    seconds: float | None, layers: int = 8, dp_shard: int = 4, tp: int = 1, **knobs: Any
) -> tuple[dict[str, Any], float | None]:
    row = row_of(Candidate(layout=Layout(dp_shard=dp_shard, tp=tp), knobs=Knobs(**knobs)), 1)
    return {**row, "model.layers": layers}, seconds


def counts(effect: str, *trials: Trial) -> tuple[int, int] | None:
    found = evidence(deck(effect), trials)
    return (found[0].confirmed, found[0].contradicted) if found else None


PREFER = "prefer: {recompute: none}"


def test_the_faster_of_a_pair_decides() -> None:
    assert counts(PREFER, trial(1.0), trial(1.3, recompute="full")) == (1, 0)
    assert counts(PREFER, trial(1.3, recompute="full"), trial(1.0)) == (1, 0)
    assert counts(PREFER, trial(1.5), trial(1.3, recompute="full")) == (0, 1)
    assert counts(PREFER, trial(1.0), trial(1.3, recompute="full"), trial(0.9, recompute="selective")) == (1, 1)


def test_a_difference_within_the_margin_says_nothing() -> None:
    assert counts(PREFER, trial(1.0), trial(1.01, recompute="full")) is None


def test_who_runs_beats_who_fails() -> None:
    assert counts(PREFER, trial(1.0), trial(None, recompute="full")) == (1, 0)
    assert counts(PREFER, trial(None), trial(1.0, recompute="full")) == (0, 1)
    assert counts(PREFER, trial(None), trial(None, recompute="full")) is None


def test_pairs_that_differ_elsewhere_or_lie_outside_the_condition_say_nothing() -> None:
    assert counts(PREFER, trial(1.0, micro_batch=2), trial(1.3, recompute="full")) is None
    assert counts(PREFER, trial(1.0, layers=8), trial(1.3, layers=9, recompute="full")) is None
    assert counts(PREFER, trial(1.0, layers=2), trial(1.3, layers=2, recompute="full")) is None
    assert counts(PREFER, trial(1.0), trial(1.3)) is None


def test_degrees_move_together_since_their_product_is_fixed() -> None:
    assert counts("prefer: {tp: 1}", trial(1.0), trial(1.3, tp=4, dp_shard=1)) == (1, 0)
    assert counts("prefer: {tp: 1}", trial(1.0), trial(1.3, tp=4, dp_shard=1, recompute="full")) is None


def test_laws_and_defaults_are_measured_too_and_the_policy_is_named() -> None:
    pair = trial(1.0), trial(1.3, recompute="full")
    assert counts("require: {recompute: none}", *pair) == (1, 0)
    assert counts("set: {recompute: none}", *pair) == (1, 0)
    assert counts("warn: true", *pair) is None
    assert evidence(deck(PREFER), pair) == (Evidence(card="A-1", policy="p", confirmed=1, contradicted=0),)
