"""After a trial: proposals of the shipped cards can be run, and the tuner tries them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuner_stand_in import REQUEST, SETTINGS, StandIn

from strategist.cards.deck import Deck, load_deck
from strategist.cards.reader import read_card
from strategist.contract import codec
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import settings_of, with_settings
from strategist.contract.workload import Workload
from strategist.executors.executor import TrialRunner
from strategist.expr.vocabulary import OBSERVED, VOCABULARY
from strategist.files import yaml_file
from strategist.ledger.ledger import Ledger
from strategist.paths import data_dir
from strategist.planning.planner import price_candidate
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation, situation
from strategist.search.tuning_result import TuningResult
from strategist.tuner.card_proposals import card_proposal
from strategist.tuner.limits import Limits
from strategist.tuner.tune import tune

GIB = 2**30
PLAIN = Candidate(layout=Layout(), knobs=Knobs())
LONG = Workload(seq_len=4096, global_batch=64)
NATIVE = replace(REQUEST, backend="native")
EIGHT, NODES = Request(model="8b", gpus="8xH100", workload=LONG), Request(model="8b", gpus="2x8xH100", workload=LONG)
MIXTURE = Request(model="qwen3-30b-a3b", gpus="8xH100", workload=LONG)
PIPELINE = {"pp": 4, "dp_shard": 2, "no_sync": True}
SERVER = {"tp": 4, "dp_shard": 2, "sequence_parallel": True}


@pytest.fixture(scope="module")
def deck() -> Deck:
    return load_deck(data_dir("cards"))


def measured(plan: Plan, **seen: Any) -> Measurement:
    """A measurement, successful by default; ``peak`` is a share of usable memory."""
    peak = int(seen.pop("peak", 0.7) * plan.cluster.device.usable_memory_bytes)
    outcome = seen.pop("outcome", Outcome.OK)
    figures = {"step_seconds": 1.0, "mfu": 0.4, "peak_memory_bytes": (peak,) * 4} if outcome is Outcome.OK else {}
    return Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=outcome, **{**figures, **seen})


def by_axis(**shares: float) -> dict[str, Any]:
    return {"comm_ratio": 0.4, "exposed_comm_ratio": sum(shares.values()), "exposed_comm_ratio_by_axis": shares}


def proposal_after(
    deck: Deck, request: Request, set_: dict[str, Any], seen: dict[str, Any], **more: Any
) -> tuple[Plan, str] | None:
    asked: Situation = situation(request)
    plan = price_candidate(asked, with_settings(PLAIN, set_), deck=deck)
    return card_proposal(deck, asked, Record(plan=plan, measurement=measured(plan, **seen)), (), [plan.candidate], **more)


@pytest.mark.parametrize(
    ("policy", "request_", "set_", "seen", "changes"),
    [
        ("BATCH-001/larger-when-memory-was-left", EIGHT, {"dp_shard": 8, "recompute": "full"}, {"peak": 0.2}, {"micro_batch": 2}),
        (
            "BATCH-001/larger-when-little-is-hidden", EIGHT, {"dp_shard": 8, "recompute": "full"},
            {"comm_ratio": 0.5, "exposed_comm_ratio": 0.4}, {"micro_batch": 2},
        ),
        (
            "BATCH-002/smaller-after-out-of-memory", replace(EIGHT, workload=replace(LONG, seq_len=2048)),
            {"dp_shard": 8, "micro_batch": 4}, {"outcome": Outcome.OOM}, {"micro_batch": 2},
        ),
        (
            "BATCH-002/smaller-when-steps-are-uneven", EIGHT, {"dp_shard": 8, "micro_batch": 2, "recompute": "full"},
            {"step_seconds_spread": 0.4, "peak": 0.9}, {"micro_batch": 1},
        ),
        ("AC-002/more-after-out-of-memory", EIGHT, {"dp_shard": 8}, {"outcome": Outcome.OOM}, {"recompute": "selective"}),
        (
            "AC-002/all-after-out-of-memory", EIGHT, {"dp_shard": 8, "recompute": "selective"}, {"outcome": Outcome.OOM},
            {"recompute": "full"},
        ),
        ("TP-003/less-when-it-shows", EIGHT, SERVER, by_axis(tp=0.3), {"tp": 2, "dp_shard": 4}),
        (
            "TP-003/none-when-it-shows", EIGHT, {**SERVER, "tp": 2, "dp_shard": 4}, by_axis(tp=0.3),
            {"tp": 1, "dp_shard": 8, "sequence_parallel": False},
        ),
        (
            "MESH-002/copies-when-gathers-show", NODES, {"dp_shard": 16}, by_axis(dp_shard=0.25) | {"peak": 0.85},
            {"dp_replicate": 2, "dp_shard": 8},
        ),
        (
            "MESH-002/fewer-copies-when-their-sum-shows", NODES, {"dp_replicate": 2, "dp_shard": 8},
            by_axis(dp_replicate=0.25) | {"peak": 0.85}, {"dp_replicate": 1, "dp_shard": 16},
        ),
        (
            "CP-001/less-when-it-shows", replace(EIGHT, workload=replace(LONG, seq_len=32768)),
            {"cp": 4, "dp_shard": 2, "recompute": "full"}, by_axis(cp=0.3) | {"peak": 0.65}, {"cp": 2, "dp_shard": 4},
        ),
        (
            "EP-001/fewer-sharers-when-their-exchange-shows", MIXTURE, {"dp_shard": 8, "ep": 8, "recompute": "full"},
            by_axis(ep=0.3) | {"peak": 0.65}, {"ep": 4},
        ),
        (
            "EP-001/fewer-sharers-when-one-is-slow-or-full", MIXTURE, {"dp_shard": 8, "ep": 8, "recompute": "full"},
            {"rank_imbalance": 0.3}, {"ep": 4},
        ),
        (
            "PP-001/more-micro-batches-when-the-bubble-shows", EIGHT, {**PIPELINE, "micro_batch": 2, "recompute": "full"},
            {"bubble_ratio": 0.2}, {"micro_batch": 1},
        ),
        ("PP-003/weigh-the-ends-when-a-stage-is-slow", EIGHT, PIPELINE, {"stage_imbalance": 0.2}, {"pp_split": "weighted"}),
        (
            "PP-004/interleave-when-the-bubble-shows", EIGHT, PIPELINE, {"bubble_ratio": 0.2},
            {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2},
        ),
        (
            "PP-004/fewer-transfers-when-they-show", EIGHT,
            {**PIPELINE, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2},
            by_axis(pp=0.2) | {"bubble_ratio": 0.05}, {"pp_schedule": "1f1b", "pp_virtual_stages": 1},
        ),
    ],
)  # fmt: skip
def test_a_proposal_of_a_shipped_card_can_be_run(
    deck: Deck, policy: str, request_: Request, set_: dict[str, Any], seen: dict[str, Any], changes: dict[str, Any]
) -> None:
    card = policy.partition("/")[0]
    found = proposal_after(Deck((deck.card(card),)), request_, set_, dict(seen))
    assert found is not None
    plan, proposed_by = found
    assert proposed_by == f"card:{policy}"
    assert settings_of(plan.candidate) == settings_of(with_settings(PLAIN, {**set_, **changes}))


def test_every_observed_figure_has_a_card_that_uses_the_figure(deck: Deck) -> None:
    named = {
        name for card in deck.cards for policy in card.policies
        if policy.phase == "observe" and policy.when and policy.effects
        for name in policy.when.names
    }  # fmt: skip
    objectives = {"observed.step_seconds", "observed.tokens_per_second"}  # objectives: a single trial shows no fault in them
    assert {name for name, entry in VOCABULARY.items() if entry.phase == OBSERVED} - named <= objectives


def card_that_tries(effect: str, card: str = "") -> Deck:
    head = "StrategyCard:\n  id: A-1\n  module: tp\n  intent: a\n  policies:\n"
    rule = f"    - {{id: p, phase: observe, when: observed.mfu >= 0, try: {effect}, because: b}}\n"
    return Deck((read_card(yaml_file.parse(head + rule + card)),))


@pytest.mark.parametrize(
    ("request_", "effect", "why"),
    [
        (NATIVE, "{tp: 3, dp_shard: 1}", "it breaks a law"),
        (replace(NATIVE, backend="transformers"), "{dp_shard: 2, pp: 2}", "the back end refuses it"),
        (NATIVE, "{reduce_dtype: bf16}", "it may change convergence, which is not allowed"),
        (replace(NATIVE, fix={"recompute": "none"}), "{recompute: full}", "the user fixed it"),
        (replace(NATIVE, model="32b"), "{recompute: full}", "it does not fit"),
    ],
)
def test_a_proposal_that_is_not_permitted_is_skipped(request_: Request, effect: str, why: str) -> None:
    assert proposal_after(card_that_tries(effect), request_, {"dp_shard": 4}, {}) is None, why


def test_a_permitted_proposal_is_not_skipped() -> None:
    for request, effect in ((NATIVE, "{recompute: full}"), (replace(NATIVE, allow=("reduce_dtype",)), "{reduce_dtype: bf16}")):
        assert proposal_after(card_that_tries(effect), request, {"dp_shard": 4}, {}) is not None


def test_a_proposal_forbidden_by_another_card_is_skipped() -> None:
    law = "    - {id: q, forbid: {recompute: full}, because: b}\n"
    assert proposal_after(card_that_tries("{recompute: full}", law), NATIVE, {"dp_shard": 4}, {}) is None


@pytest.fixture
def run(tmp_path: Path, deck: Deck) -> Callable[..., TuningResult]:
    """``run(first, executor)`` tunes in a study whose first trial has the settings ``first``."""

    def tuned(first: dict[str, Any], executor: StandIn, trials: int = 2, cards: Deck = deck) -> TuningResult:
        plan = price_candidate(situation(NATIVE), with_settings(PLAIN, first), deck=cards)
        with Ledger.open(tmp_path / "study", create=True) as ledger:
            ledger.enqueue(plan.candidate.key, codec.dumps(plan), "search")
        return tune(
            NATIVE,
            study=tmp_path / "study",
            limits=Limits(trials=trials, confirm=0),
            runner=TrialRunner(executor=executor, settings=SETTINGS),
            deck=cards,
        )

    return tuned


def test_after_out_of_memory_smaller_settings_are_tried(run, tmp_path: Path) -> None:
    result = run({"dp_shard": 4, "micro_batch": 4}, StandIn(outcome=Outcome.OOM), trials=4)
    proposers = [trial.proposed_by for trial in result.trials]
    assert proposers[:2] == ["search", "card:BATCH-002/smaller-after-out-of-memory"]
    assert [trial.plan.candidate.knobs.micro_batch for trial in result.trials][:2] == [4, 2]
    kept = history.read(tmp_path / "study/history.jsonl").records
    assert [(record.trial, record.proposed_by) for record in kept] == list(zip(range(1, 5), proposers, strict=True))


@pytest.mark.full
def test_an_option_proposed_by_a_card_is_tried(run) -> None:
    result = run({"dp_shard": 4}, StandIn(), cards=card_that_tries("{optimizer_kernel: for_loop}"))
    first, second = result.trials
    assert second.proposed_by == "card:A-1/p"
    assert second.plan.candidate == with_settings(first.plan.candidate, {"optimizer_kernel": "for_loop"})


@pytest.mark.full
def test_a_proposal_that_is_not_permitted_is_not_tried(run) -> None:
    result = run({"dp_shard": 4}, StandIn(), cards=card_that_tries("{tp: 3, dp_shard: 1}"))
    assert [trial.proposed_by for trial in result.trials] == ["search", "search"]


def test_the_outcome_of_a_proposal_is_evidence(run) -> None:
    result = run({"dp_shard": 4, "micro_batch": 1}, StandIn(), cards=card_that_tries("{recompute: full}"))
    (counted,) = [item for item in result.evidence if item.policy == "p"]
    first, second = (trial.measurement.step_seconds for trial in result.trials)
    assert second < 0.98 * first
    assert (counted.taken, counted.confirmed, counted.contradicted) == (1, 1, 0)
    assert [(pair.followed, pair.ignored) for pair in counted.pairs] == [("2", "1")]
