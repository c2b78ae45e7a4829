"""Candidates that a deck drops or prefers, and reasons of a plan."""

from typing import Any

import numpy as np
import pytest

from strategist.api import load_cards
from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.expr.columns import Columns, row_of, table
from strategist.files import yaml_file
from strategist.profiles.situation import situation
from strategist.rules import policy_evaluation as judging
from strategist.rules.policy_evaluation import judge, preferences, reasons
from strategist.search.candidate_tables import candidate_table
from strategist.search.facts import situation_facts
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

ROWS = [(tp, recompute) for tp in (1, 2, 4) for recompute in ("none", "selective", "full")]


def columns() -> Columns:
    return table([row_of(Candidate(layout=Layout(tp=tp, dp_shard=8), knobs=Knobs(recompute=how)), 1) for tp, how in ROWS])


def card(card_id: str, policies: str, preconditions: str = "[]", risks: str = "[]") -> Deck:
    text = f"StrategyCard:\n  id: {card_id}\n  module: tp\n  intent: a\n  preconditions: {preconditions}\n  risks: {risks}\n"
    return Deck((read_card(yaml_file.parse(f"{text}  policies:\n{policies}", f"{card_id}.yaml")),))


def policy(name: str, effect: str, when: str = "") -> str:
    return f"    - id: {name}\n" + (f"      when: {when}\n" if when else "") + f"      {effect}\n      because: for {name}\n"


def allowed_rows(deck: Deck, facts: dict[str, Any] | None = None, fixed: frozenset[str] = frozenset()) -> list[tuple[int, str]]:
    allowed = judge(deck, facts or {}, columns(), fixed).allowed
    return [row for row, allow in zip(ROWS, allowed, strict=True) if allow]


@pytest.mark.parametrize(
    ("effect", "when", "left"),
    [
        ("require: {recompute: full}", "layout.tp == 2", [*ROWS[:3], (2, "full"), *ROWS[6:]]),
        ("require: {recompute: [none, full], tp: 4}", "", [(4, "none"), (4, "full")]),
        ("forbid: {tp: 4}", "", ROWS[:6]),
        ("forbid: {tp: [2, 4], recompute: none}", "", [*ROWS[:3], *ROWS[4:6], *ROWS[7:]]),
        ("forbid: candidate", "layout.tp > 1 and knobs.recompute != 'full'", [*ROWS[:3], ROWS[5], ROWS[8]]),
        ("set: {tp: 1}", "", ROWS[:3]),
        ("warn: true", "", ROWS),
        ("prefer: {tp: 1}", "", ROWS),
        ("forbid: {tp: 4}", "cluster.nodes > 1", ROWS),
        ("forbid: {tp: 4}", "model.layers > 8", ROWS[:6]),
    ],
)
def test_policies_drop_candidates_of_a_table(effect: str, when: str, left: list[tuple[int, str]]) -> None:
    assert allowed_rows(card("A-1", policy("p", effect, when)), {"model.layers": 9}) == left


def test_a_policy_without_known_preconditions_does_not_act() -> None:
    law = policy("p", "forbid: candidate")
    assert allowed_rows(card("A-1", law, "[{when: layout.tp > 1}, words]")) == ROWS[:3]
    assert allowed_rows(card("A-1", law, "[{when: cluster.nodes > 1}]")) == ROWS
    assert allowed_rows(card("A-1", law, "[{when: layout.tp > 1}, {when: knobs.recompute == 'full'}]")) == [*ROWS[:5], *ROWS[6:8]]


def test_a_fixed_setting_overrides_defaults_but_not_laws() -> None:
    deck = card("A-1", policy("default", "set: {tp: 1, recompute: none}"))
    assert allowed_rows(deck) == [(1, "none")]
    assert allowed_rows(deck, fixed=frozenset({"tp"})) == [(1, "none"), (2, "none"), (4, "none")]
    assert allowed_rows(deck, fixed=frozenset({"layout.tp", "knobs.recompute"})) == ROWS
    assert allowed_rows(card("A-1", policy("law", "require: {tp: 1}")), fixed=frozenset({"tp"})) == ROWS[:3]


def test_a_default_that_leaves_no_candidate_is_skipped() -> None:
    deck = Deck(
        card("A-1", policy("default", "set: {tp: 8}")).cards + card("A-2", policy("law", "forbid: {recompute: none}")).cards
    )
    judgement = judge(deck, {}, columns())
    assert judgement.allowed.sum() == 6
    assert [drop.policy for drop in judgement.dropped] == ["law"]


def test_drops_are_counted_under_the_first_policy_in_card_order() -> None:
    first = card("A-1", policy("wide", "forbid: {tp: 4}") + policy("narrow", "forbid: {tp: 1, recompute: none}")).cards
    second = card("A-2", policy("again", "forbid: {tp: [2, 4], recompute: none}") + policy("idle", "forbid: {tp: 4}")).cards
    judgement = judge(Deck(first + second), {}, columns())
    assert [(drop.card, drop.policy, drop.because, drop.rows) for drop in judgement.dropped] == [
        ("A-1", "wide", "for wide", 3),
        ("A-1", "narrow", "for narrow", 1),
        ("A-2", "again", "for again", 1),
    ]
    assert sum(drop.rows for drop in judgement.dropped) == np.count_nonzero(~judgement.allowed)


def test_violated_preferences_are_counted_per_candidate() -> None:
    rules = policy("few", "prefer: {tp: 1}") + policy("cheap", "prefer: candidate", "knobs.recompute == 'none'")
    assert preferences(card("A-1", rules), {}, columns()).tolist() == [0, -1, -1, -1, -2, -2, -1, -2, -2]


def test_preferences_within_a_precondition_do_not_penalise_other_candidates() -> None:
    well = policy("wide", "prefer: candidate", "layout.tp < 4") + policy("cheap", "prefer: {recompute: none}", "layout.tp == 4")
    score = preferences(card("A-1", well, "[{when: layout.tp > 1}]"), {}, columns())
    assert score.tolist() == [0, 0, 0, 0, 0, 0, -1, -2, -2]


def test_observe_policies_drop_no_candidate() -> None:
    rule = "    - id: p\n      phase: observe\n      when: layout.tp > 1\n      try: {tp: 1}\n"
    assert allowed_rows(card("A-1", rule)) == ROWS


def named_reasons(deck: Deck, row: dict[str, Any], facts: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    return [(reason.policy, reason.effect) for reason in reasons(deck, facts or {}, row)]


def test_reasons_name_the_policies_of_a_candidate() -> None:
    rules = (
        policy("law", "require: {recompute: full}", "layout.tp > 1")
        + policy("ban", "forbid: {recompute: none}")
        + policy("bans-rows", "forbid: candidate", "layout.tp > 4")
        + policy("liked", "prefer: {tp: 2}")
        + policy("default", "set: {sequence_parallel: false}")
        + policy("careful", "warn: true", "layout.tp == 2")
        + policy("unknown", "warn: true", "cluster.nodes > 1")
    )
    fallback = "{tp: 1, recompute: [none, full]}"
    risks = f"[{{id: slow, when: layout.tp > 1, text: Slow., fallback: {fallback}}}, {{id: other, when: layout.tp > 4, text: x}}]"
    deck = card("A-1", rules, risks=risks)
    row = row_of(Candidate(layout=Layout(tp=2, dp_shard=4), knobs=Knobs(recompute="full")), 1)
    expected = [
        ("law", "require"),
        ("ban", "forbid"),
        ("liked", "prefer"),
        ("default", "set"),
        ("careful", "warn"),
        ("slow", "risk"),
    ]
    assert named_reasons(deck, row) == expected
    texts = {reason.policy: reason.text for reason in reasons(deck, {}, row)}
    assert texts["law"] == "for law"
    assert texts["slow"] == "Slow. Fallback: tp = 1, recompute = none or full."
    assert named_reasons(deck, row | {"layout.tp": 1}) == [("ban", "forbid"), ("default", "set")]
    assert ("unknown", "warn") in named_reasons(deck, row, {"cluster.nodes": 2})


def test_tables_in_parts_give_the_results_of_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped deck over a space with experts: equal rows remain, and the same policies drop equal counts."""
    asked = situation(Request(model="moonlight-16b-a3b", gpus="4xH100", workload=Workload(global_batch=8)))
    facts = situation_facts(asked.model, asked.cluster, asked.request.workload)
    everything = candidate_table(space(asked.model, asked.cluster, asked.request.workload, SpaceConstraints()))
    shipped, weights = load_cards(), np.arange(everything.rows)
    found = []
    for least, at_a_time in ((everything.rows, everything.rows), (0, everything.rows), (0, everything.rows // 7), (0, 500)):
        monkeypatch.setattr(judging, "SHRINK_ROWS", least)
        monkeypatch.setattr(judging, "PART_ROWS", at_a_time)
        found.append(judge(shipped, facts, everything, weights=weights, among=weights % 5 > 0))
    assert len(found[0].dropped) > 5
    for other in found[1:]:
        assert found[0].dropped == other.dropped
        assert np.array_equal(found[0].allowed, other.allowed)
    assert 0 < found[0].allowed.sum() < everything.rows / 4


RECOMPUTED = ((1, "full"), (4, "none"), (2, "none"), (2, "full"))


def test_a_default_is_skipped_if_no_part_of_a_table_has_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in parts: the first default leaves rows of the second part only, the second default none, the third some."""
    rules = policy("two", "set: {tp: 2}") + policy("none", "set: {tp: 64}") + policy("full", "set: {recompute: full}")
    deck = card("A-1", rules)
    rows = [row_of(Candidate(layout=Layout(tp=tp, dp_shard=2), knobs=Knobs(recompute=kind)), 1) for tp, kind in RECOMPUTED]
    for at_a_time in (1, 2, len(rows)):
        monkeypatch.setattr(judging, "PART_ROWS", at_a_time)
        judgement = judge(deck, {}, table(rows))
        assert judgement.allowed.tolist() == [False, False, False, True]
        assert [(drop.policy, drop.rows) for drop in judgement.dropped] == [("two", 2), ("full", 1)]
