"""Why not: each kind of obstacle, on real plans of the real planner."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from strategist import api
from strategist.cards.deck import Deck, load_deck
from strategist.contract import codec
from strategist.contract.explanation import Explanation, Obstacle
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.explain import why_not
from strategist.units import show_bytes


@pytest.fixture(scope="module")
def small() -> Plan:
    """A tiny model with plenty of room."""
    workload = Workload(seq_len=128, global_batch=16)
    return api.plan(Request(model="tiny", gpus="4xcpu", workload=workload, backend="native"), top=1).plans[0]


@pytest.fixture(scope="module")
def large() -> Plan:
    """A model that fills its devices."""
    return api.plan(Request(model="32b", gpus="8x24GB"), top=1).plans[0]


def test_every_setting_that_matters_is_decided_by_a_card_or_by_cost(small: Plan) -> None:
    explanation = api.explain(small)
    names = {decision.setting for decision in explanation.decisions}
    assert {"dp_shard", "tp", "micro_batch", "recompute", "offload", "reduce_dtype"} <= names
    assert not {"pp_schedule", "ep", "loss_parallel"} & names
    for decision in explanation.decisions:
        assert decision.reasons or decision.alternatives
    said = {reason for decision in explanation.decisions for reason in decision.reasons} | set(explanation.others)
    assert said == set(small.reasons)


def test_an_explanation_is_a_document(small: Plan) -> None:
    explanation = api.explain(small)
    assert codec.loads(Explanation, codec.dumps(explanation)) == explanation


def test_a_law_is_named_where_a_value_is_illegal(small: Plan) -> None:
    alternative = api.why_not(small, "micro_batch", 3)
    assert alternative.obstacle is Obstacle.ILLEGAL
    assert "must divide global_batch 16" in alternative.text
    assert api.why_not(small, "tp", 3).obstacle is Obstacle.ILLEGAL


def test_a_card_is_named_where_it_rules_a_value_out(small: Plan) -> None:
    alternative = api.why_not(small, "reduce_dtype", "bf16")
    assert alternative.obstacle is Obstacle.FORBIDDEN
    assert alternative.text.startswith("PREC-001/fp32-by-default rules it out: ")


def test_the_card_against_the_plan_itself_is_not_taken_for_the_one_against_the_value(small: Plan, tmp_path: Path) -> None:
    assert small.candidate.knobs.recompute != "full"
    policies = [f"{{id: mine, forbid: {{recompute: {small.candidate.knobs.recompute}}}, because: Mine.}}"]
    policies.append("{id: other, forbid: {recompute: full}, because: Other.}")
    card = "StrategyCard:\n  id: MY-001\n  module: recompute\n  intent: A test\n  policies:\n"
    (tmp_path / "mine.yaml").write_text(card + "".join(f"    - {policy}\n" for policy in policies), encoding="utf-8")
    price = partial(_same_price, small)
    alternative = why_not(small, "recompute", "full", deck=load_deck(tmp_path), known={}, price=price)
    assert alternative.obstacle is Obstacle.FORBIDDEN
    assert alternative.text == "MY-001/other rules it out: Other."


def test_bytes_are_named_where_a_value_does_not_fit(large: Plan) -> None:
    assert large.candidate.knobs.offload == "all"
    alternative = api.why_not(large, "offload", "none")
    assert alternative.obstacle is Obstacle.TOO_LARGE
    assert alternative.plan is not None
    over = alternative.plan.estimate.peak_memory_bytes - large.estimate.capacity_bytes
    assert alternative.text.endswith(f"{show_bytes(over)} too much")


def _same_price(plan: Plan, candidate: Candidate) -> Plan:
    return replace(plan, candidate=candidate)


def test_host_memory_counts_as_well(large: Plan) -> None:
    poor = replace(large, cluster=replace(large.cluster, host_memory_bytes=2**30))
    price = partial(_same_price, poor)
    alternative = why_not(poor, "offload", "optimizer", deck=Deck(()), known={}, price=price)
    assert alternative.obstacle is Obstacle.HOST_TOO_SMALL
    assert alternative.text.startswith("needs ")
    assert "of host memory a node, 1.0 GiB are there" in alternative.text


@pytest.mark.parametrize(("name", "value"), [("recompute", "full"), ("micro_batch", 1), ("tp", 2)])
def test_a_slower_value_says_by_how_much(small: Plan, name: str, value: KnobValue) -> None:
    alternative = api.why_not(small, name, value)
    assert alternative.plan is not None
    if alternative.obstacle is Obstacle.SLOWER:
        ratio = alternative.plan.estimate.step_seconds / small.estimate.step_seconds
        assert (f"{ratio:.1f} times as long" if ratio >= 2 else f"{ratio - 1:.1%} slower") in alternative.text
    else:
        assert alternative.obstacle is Obstacle.FORBIDDEN


def test_devices_follow_the_axis_that_is_asked_for(small: Plan) -> None:
    alternative = api.why_not(small, "tp", 2)
    assert alternative.plan is not None
    layout = alternative.plan.candidate.layout
    assert layout.tp == 2
    assert layout.world_size == small.cluster.devices
    assert "(with " in alternative.text


def test_what_the_plan_has_is_no_alternative(small: Plan) -> None:
    assert api.why_not(small, "recompute", small.candidate.knobs.recompute).text == "the plan has it"


def test_a_plan_is_compared_in_todays_prices(small: Plan, tmp_path: Path) -> None:
    codec.save(Calibration(compute=5.0, communication=5.0, launch=5.0), tmp_path / "calibration.json")
    before = api.why_not(small, "recompute", "full")
    learned = api.why_not(small, "recompute", "full", calibration=tmp_path / "calibration.json")
    assert before.obstacle is learned.obstacle is Obstacle.SLOWER
    assert "times as long" not in learned.text


def test_an_edited_plan_is_compared_as_it_is_now(small: Plan) -> None:
    knobs = replace(small.candidate.knobs, recompute="full")
    edited = replace(small, candidate=replace(small.candidate, knobs=knobs))
    assert api.why_not(edited, "recompute", "none").obstacle is Obstacle.FASTER


def test_an_explanation_names_the_plan_it_was_asked_about(small: Plan, tmp_path: Path) -> None:
    codec.save(Calibration(compute=5.0), tmp_path / "calibration.json")
    assert api.explain(small, calibration=tmp_path / "calibration.json").plan.id == small.id
    assert api.explain(small).plan == small


@pytest.mark.parametrize("size", [2, 4])
def test_groups_stay_as_they_are_where_the_layout_does(small: Plan, size: int) -> None:
    layout = replace(small.candidate.layout, dp_replicate=1, dp_shard=8)
    knobs = replace(small.candidate.knobs, micro_batch=1, reshard_after_forward="subgroup", reshard_group_size=size)
    cluster = replace(small.cluster, gpus_per_node=8)
    grouped = replace(small, cluster=cluster, candidate=replace(small.candidate, layout=layout, knobs=knobs))
    other = api.why_not(grouped, "recompute", "full").plan
    assert other is not None
    assert other.candidate.knobs == replace(knobs, recompute="full")
