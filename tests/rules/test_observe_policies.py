"""Proposals and warnings after a trial."""

from typing import Any

import pytest

from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.expr.columns import row_of
from strategist.files import yaml_file
from strategist.rules.observe_policies import observed_proposals, warnings

ROW = row_of(Candidate(layout=Layout(dp_shard=8), knobs=Knobs(micro_batch=4)), 2)


def deck(effect: str, when: str = "observed.mfu < 0.3", phase: str = "observe") -> Deck:
    text = "StrategyCard:\n  id: A-1\n  module: tp\n  intent: a\n  preconditions: [{when: layout.dp_shard > 1}]\n"
    rule = f"    - id: p\n      phase: {phase}\n      when: {when}\n      {effect}\n      because: It was slow.\n"
    return Deck((read_card(yaml_file.parse(f"{text}  policies:\n{rule}")),))


@pytest.mark.parametrize(
    ("effect", "changes"),
    [
        ("try: {recompute: full}", {"knobs.recompute": "full"}),
        ("try: {recompute: none}", {}),
        ("try: {recompute: [full, none]}", {}),
        ("try: {recompute: [full, selective]}", {"knobs.recompute": "full"}),
        ("try: {micro_batch: knobs.micro_batch * 2, recompute: full}", {"knobs.micro_batch": 8, "knobs.recompute": "full"}),
        ("try: {micro_batch: knobs.micro_batch / 8}", {}),
        ("try: {micro_batch: knobs.micro_batch / 0, recompute: full}", {}),
        ("try: {micro_batch: cluster.gpus_per_node}", {}),
        ("try: {reshard_after_forward: false}", {"knobs.reshard_after_forward": False}),
    ],
)
def test_a_proposal_has_computable_changes(effect: str, changes: dict[str, Any]) -> None:
    proposals = observed_proposals(deck(effect), {"observed.mfu": 0.1}, ROW)
    assert [proposal.changes for proposal in proposals] == ([changes] if changes else [])


def test_a_proposal_names_its_policy_and_reason() -> None:
    (proposal,) = observed_proposals(deck("try: {recompute: full}"), {"observed.mfu": 0.1}, ROW)
    assert (proposal.card, proposal.policy, proposal.because) == ("A-1", "p", "It was slow.")


@pytest.mark.parametrize("facts", [{"observed.mfu": 0.5}, {}, {"observed.mfu": None}])
def test_nothing_is_proposed_if_the_condition_is_unknown_or_false(facts: dict[str, Any]) -> None:
    assert observed_proposals(deck("try: {recompute: full}"), facts, ROW) == ()


def test_nothing_is_proposed_if_the_preconditions_fail() -> None:
    assert observed_proposals(deck("try: {recompute: full}"), {"observed.mfu": 0.1}, ROW | {"layout.dp_shard": 1}) == ()


def test_plan_policies_propose_nothing() -> None:
    assert observed_proposals(deck("prefer: {recompute: full}", "layout.dp_shard > 1", "plan"), {"observed.mfu": 0.1}, ROW) == ()


@pytest.mark.parametrize(("mfu", "expected"), [(0.1, ["It was slow."]), (0.5, []), (None, [])])
def test_a_warning_policy_warns_after_a_trial(mfu: float | None, expected: list[str]) -> None:
    found = warnings(deck("warn: true"), {"observed.mfu": mfu}, ROW)
    assert [(reason.policy, reason.effect, reason.text) for reason in found] == [("p", "warn", text) for text in expected]
