"""Explanations: each kind of obstacle of a value, on real plans."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from formats.plans import deck
from rich.console import Console

from planning.plans import best
from strategist import api
from strategist.cards.deck import Deck, load_deck
from strategist.contract import codec
from strategist.contract.explanation import Explanation, Obstacle
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.paths import data_dir
from strategist.planning.explain import PlanExplainer, explain, why_not
from strategist.report.explanation import explanation_report
from strategist.search.needed_candidates import NEAR_TIE
from strategist.units import show_bytes

TINY = Request(
    model="tiny", gpus="4xcpu", workload=Workload(seq_len=128, global_batch=16), backend="native", fix={"pp": 1}
)  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Plan:
    """A plan of a tiny model with much free memory."""
    return best(TINY)


@pytest.fixture(scope="module")
def large() -> Plan:
    """A plan of a model that fills its devices."""
    return best(Request(model="32b", gpus="8x24GB"))


@pytest.fixture(scope="module")
def small_explained(small: Plan) -> Explanation:
    return api.explain(small)


@pytest.fixture(scope="module")
def large_explained(large: Plan) -> Explanation:
    return api.explain(large)


def explained_by_cards(plan: Plan, deck: Deck) -> Explanation:
    """What cards say of the plan; other values have its price, so that none is priced."""
    return explain(plan, equal_prices(plan, deck))


def equal_prices(plan: Plan, deck: Deck) -> PlanExplainer:
    """An explainer for which all candidates have the plan's price."""

    def resolve(candidates: Sequence[Candidate]) -> list[Plan]:
        return [replace(plan, candidate=candidate) for candidate in candidates]

    return PlanExplainer(deck=deck, known={}, price=lambda candidate: replace(plan, candidate=candidate), resolve=resolve)


def test_each_relevant_setting_has_a_reason_or_rejected_values(small: Plan, small_explained: Explanation) -> None:
    explanation = small_explained
    names = {decision.setting for decision in explanation.decisions}
    assert {"dp_shard", "tp", "micro_batch", "recompute", "offload", "reduce_dtype"} <= names
    assert not {"pp_schedule", "ep", "loss_parallel"} & names
    for decision in explanation.decisions:
        assert decision.reasons or decision.why_not
    reasons = {reason for decision in explanation.decisions for reason in decision.reasons} | set(explanation.others)
    assert reasons == set(small.reasons)


def test_a_preference_for_whole_plans_is_a_reason_of_the_settings_that_it_depends_on() -> None:
    fixed = {"dp_replicate": 2, "dp_shard": 8, "micro_batch": 2, "recompute": "none", "offload": "none"}
    plan = best(Request(model="llama3-8b", gpus="2x8xH100", fix=fixed))
    explanation = explained_by_cards(plan, deck())
    reasons = {decision.setting: {reason.card for reason in decision.reasons} for decision in explanation.decisions}
    assert "MESH-002" in reasons["dp_replicate"]
    assert "MESH-002" not in reasons["micro_batch"], "its condition does not depend on it"
    assert "MESH-002" not in {reason.card for reason in explanation.others}


@pytest.mark.parametrize(("ratio", "decided"), [(0.98, "near tie"), (0.999, "cost model decided"), (1.02, "cost model decided")])
def test_the_cost_model_decided_only_what_is_not_slower_than_its_other_values(
    small: Plan, small_explained: Explanation, ratio: float, decided: str
) -> None:
    explanation = small_explained
    decision = next(item for item in explanation.decisions if not item.reasons and item.why_not[0].plan)
    other = replace(small, estimate=replace(small.estimate, step_seconds=ratio * small.estimate.step_seconds))
    equal = replace(decision.why_not[0], obstacle=Obstacle.EQUAL, plan=other)
    console = Console(file=StringIO(), width=200)
    console.print(explanation_report(replace(explanation, decisions=(replace(decision, why_not=(equal,)),))))
    assert decided in console.file.getvalue()  # type: ignore[attr-defined]


def test_decisions_follow_the_order_of_the_flow(large_explained: Explanation) -> None:
    explanation = large_explained
    flow = api.load_cards().flow
    assert flow is not None
    assert explanation.flow == flow.id
    ids = [step.id for step in flow.steps]
    assert [step.id for step in explanation.steps] == [name for name in ids if name not in ("ddp", "ep")], "no replicas, no experts"
    places = [ids.index(decision.step) for decision in explanation.decisions]
    assert places == sorted(places)
    decided = {path.partition(".")[2]: step.id for step in flow.steps for path in step.decides}
    assert all(decided[decision.setting] == decision.step for decision in explanation.decisions)


def test_settings_outside_a_users_flow_come_last(small: Plan, small_explained: Explanation, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "DecisionFlow:\n  id: own\n  steps:\n    - {id: last, decides: [micro_batch]}\n    - {id: none, decides: [offload],"
        " when: layout.pp > 1}\n    - {id: first, decides: [recompute, tp]}\n"
    )
    explanation = explained_by_cards(small, load_deck(data_dir("cards"), tmp_path))
    assert [(decision.setting, decision.step) for decision in explanation.decisions[:3]] == [
        ("micro_batch", "last"),
        ("recompute", "first"),
        ("tp", "first"),
    ]
    rest = explanation.decisions[3:]
    assert {decision.step for decision in rest} == {""}
    assert "offload" in {decision.setting for decision in rest}, "its step is skipped"
    assert explanation.deck != small_explained.deck


HANDBOOK = """\
StrategyCard:
  module: fsdp2
  intent: 显存节省 vs 通信开销
  control_points:
    - {name: reshard_after_forward, effect: param lifetime}
    - {name: nothing_known, effect: unknown}
  policies:
    - "root: False, others: True"
  risks:
    - False 可能造成显存爆炸
"""


def test_free_text_cards_are_advice_on_settings_that_the_plan_decides(tmp_path: Path) -> None:
    (tmp_path / "handbook.yaml").write_text(HANDBOOK, encoding="utf-8")
    handbook = load_deck(tmp_path)
    sharded = best(replace(TINY, fix={"dp_shard": 4}))
    (advice,) = explained_by_cards(sharded, handbook).advice
    assert (advice.card, advice.settings, advice.intent) == ("handbook", ("reshard_after_forward",), "显存节省 vs 通信开销")
    assert advice.texts == ("root: False, others: True", "False 可能造成显存爆炸")
    assert explained_by_cards(sharded, deck()).advice == ()
    whole = best(replace(TINY, fix={"dp_replicate": 4}))
    assert explained_by_cards(whole, handbook).advice == (), "without sharding there is no resharding"


OPTION = """\
StrategyCard:
  id: MY-001
  module: checkpoint
  intent: A test
  policies:
    - {id: often, set: {checkpoint_interval: 50}, because: The rack is old.}
"""


@pytest.fixture(scope="module")
def own_cards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards")
    (folder / "mine.yaml").write_text(OPTION, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def own_plan(own_cards: Path) -> Plan:
    """A plan of which a user's card decides an option."""
    return best(TINY, load_deck(data_dir("cards"), own_cards))


@pytest.fixture(scope="module")
def own_explained(own_plan: Plan, own_cards: Path, tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    """Its explanation, with a card less and another calibration."""
    calibration = tmp_path_factory.mktemp("own") / "calibration.json"
    codec.save(Calibration(compute=5.0), calibration)
    return api.explain(own_plan, cards=[own_cards], without=["AC-001"], calibration=calibration)


def test_options_are_explained_by_cards_only(own_plan: Plan, own_explained: Explanation, own_cards: Path) -> None:
    plan = own_plan
    assert plan.candidate.options.checkpoint_interval == 50
    decisions = {decision.setting: decision for decision in own_explained.decisions}
    assert [reason.card for reason in decisions["checkpoint_interval"].reasons] == ["MY-001"]
    assert decisions["checkpoint_interval"].why_not == ()
    forbidden = api.why_not(plan, "checkpoint_interval", 70, cards=[own_cards])
    assert (forbidden.obstacle, forbidden.text) == (Obstacle.FORBIDDEN, "MY-001/often rules it out: The rack is old.")
    free = api.why_not(plan, "checkpoint_interval", 70, without=[card.id for card in api.load_cards().cards])
    assert (free.obstacle, free.text) == (Obstacle.EQUAL, "their prices are equal")


def test_an_explanation_lists_added_and_removed_cards(
    small_explained: Explanation, own_explained: Explanation, own_cards: Path
) -> None:
    assert own_explained.not_as_shipped == (f"MY-001 comes from {own_cards / 'mine.yaml'}", "AC-001 is left out")
    assert small_explained.not_as_shipped == ()


def test_an_explanation_survives_a_json_round_trip(small_explained: Explanation) -> None:
    assert codec.loads(Explanation, codec.dumps(small_explained)) == small_explained


def test_an_illegal_value_names_the_violated_rule(small: Plan) -> None:
    alternative = api.why_not(small, "micro_batch", 3)
    assert alternative.obstacle is Obstacle.ILLEGAL
    assert "must divide global_batch 16" in alternative.text
    assert api.why_not(small, "tp", 3).obstacle is Obstacle.ILLEGAL


def test_a_forbidden_value_names_the_card(small: Plan) -> None:
    alternative = api.why_not(small, "reduce_dtype", "bf16")
    assert alternative.obstacle is Obstacle.FORBIDDEN
    assert alternative.text.startswith("PREC-001/fp32-by-default rules it out: ")


def test_a_default_of_an_option_rules_no_layout_out() -> None:
    """EP-006 sets ``expert_balance`` where experts are shared, which changes convergence, so that it is not taken unasked."""
    plan = best(Request(model="qwen3-30b-a3b", gpus="2x8xH100", fix={"ep": 1}))
    asked = replace(plan, request=Request(model="qwen3-30b-a3b", gpus="2x8xH100"))
    assert api.why_not(asked, "ep", 8).obstacle in (Obstacle.SLOWER, Obstacle.EQUAL)


def test_a_forbidden_value_names_the_card_against_the_value_not_against_the_plan(small: Plan, tmp_path: Path) -> None:
    assert small.candidate.knobs.recompute != "full"
    policies = [f"{{id: mine, forbid: {{recompute: {small.candidate.knobs.recompute}}}, because: Mine.}}"]
    policies.append("{id: other, forbid: {recompute: full}, because: Other.}")
    card = "StrategyCard:\n  id: MY-001\n  module: recompute\n  intent: A test\n  policies:\n"
    (tmp_path / "mine.yaml").write_text(card + "".join(f"    - {policy}\n" for policy in policies), encoding="utf-8")
    alternative = why_not(small, "recompute", "full", equal_prices(small, load_deck(tmp_path)))
    assert alternative.obstacle is Obstacle.FORBIDDEN
    assert alternative.text == "MY-001/other rules it out: Other."


def test_a_value_that_does_not_fit_states_the_excess_bytes() -> None:
    large = best(Request(model="32b", gpus="8x24GB", fix={"offload": "all"}))
    alternative = api.why_not(large, "offload", "optimizer")
    assert alternative.obstacle is Obstacle.TOO_LARGE
    assert alternative.plan is not None
    over = alternative.plan.estimate.peak_memory_bytes - alternative.plan.estimate.capacity_bytes
    assert f"{show_bytes(over)} too much" in alternative.text


def test_a_value_that_exceeds_host_memory_states_the_host_memory(large: Plan) -> None:
    poor = replace(large, cluster=replace(large.cluster, host_memory_bytes=2**30))
    alternative = why_not(poor, "offload", "optimizer", equal_prices(poor, Deck(())))
    assert alternative.obstacle is Obstacle.HOST_TOO_SMALL
    assert alternative.text.startswith("needs ")
    assert "of host memory a node, 1.0 GiB are there" in alternative.text


@pytest.mark.parametrize(("name", "value"), [("recompute", "full"), ("micro_batch", 1), ("tp", 2)])
def test_a_slower_value_states_its_slowdown(small: Plan, name: str, value: KnobValue) -> None:
    alternative = api.why_not(small, name, value)
    assert alternative.plan is not None
    if alternative.obstacle is Obstacle.SLOWER:
        ratio = alternative.plan.estimate.step_seconds / small.estimate.step_seconds
        assert (f"{ratio:.1f} times as long" if ratio >= 2 else f"{ratio - 1:.1%} slower") in alternative.text
    else:
        assert alternative.obstacle is Obstacle.FORBIDDEN


def test_a_faster_value_within_the_near_tie_is_equal_up_to_its_limit(small: Plan) -> None:
    explainer = equal_prices(replace(small, estimate=replace(small.estimate, step_seconds=1.0)), Deck(()))
    for seconds, obstacle in ((1 + NEAR_TIE, Obstacle.EQUAL), (1 + 2 * NEAR_TIE, Obstacle.FASTER)):
        slow = replace(small, estimate=replace(small.estimate, step_seconds=seconds))
        assert why_not(slow, "recompute", "full", explainer).obstacle is obstacle


def test_why_not_of_a_degree_takes_devices_from_another_axis(small: Plan) -> None:
    alternative = api.why_not(small, "tp", 2)
    assert alternative.plan is not None
    layout = alternative.plan.candidate.layout
    assert layout.tp == 2
    assert layout.world_size == small.cluster.devices
    assert "(with " in alternative.text


def test_why_not_of_a_degree_takes_devices_from_two_axes_if_needed(small: Plan) -> None:
    candidate = replace(small.candidate, layout=Layout(dp_shard=2, tp=2))
    mixed = replace(small, candidate=with_settings(candidate, {"sequence_parallel": True, "loss_parallel": True})).identified()
    alternative = api.why_not(mixed, "pp", 4)
    assert alternative.plan is not None
    layout = alternative.plan.candidate.layout
    assert (layout.pp, layout.dp_shard, layout.tp, layout.world_size) == (4, 1, 1, 4)


def test_why_not_of_the_plans_own_value_is_reported(small: Plan) -> None:
    assert api.why_not(small, "recompute", small.candidate.knobs.recompute).text == "the plan has it"


def test_why_not_uses_the_given_calibration(small: Plan, tmp_path: Path) -> None:
    codec.save(Calibration(compute=5.0, communication=5.0, launch=5.0), tmp_path / "calibration.json")
    before = api.why_not(small, "recompute", "full")
    learned = api.why_not(small, "recompute", "full", calibration=tmp_path / "calibration.json")
    assert before.obstacle is learned.obstacle is Obstacle.SLOWER
    assert "times as long" not in learned.text


def test_an_edited_plan_is_compared_as_edited(small: Plan) -> None:
    knobs = replace(small.candidate.knobs, recompute="full")
    edited = replace(small, candidate=replace(small.candidate, knobs=knobs))
    assert api.why_not(edited, "recompute", "none").obstacle is Obstacle.FASTER


def test_an_explanation_with_another_calibration_keeps_the_plan_id(
    small: Plan, small_explained: Explanation, own_plan: Plan, own_explained: Explanation
) -> None:
    assert own_explained.plan.id == own_plan.id
    assert own_explained.plan.estimate.step_seconds > own_plan.estimate.step_seconds
    assert small_explained.plan == small


@pytest.mark.parametrize("size", [2, 4])
def test_why_not_keeps_the_reshard_group_size_if_the_layout_is_unchanged(small: Plan, size: int) -> None:
    layout = replace(small.candidate.layout, dp_replicate=1, dp_shard=8)
    knobs = replace(small.candidate.knobs, micro_batch=1, reshard_after_forward="subgroup", reshard_group_size=size)
    cluster = replace(small.cluster, gpus_per_node=8)
    grouped = replace(small, cluster=cluster, candidate=replace(small.candidate, layout=layout, knobs=knobs))
    other = why_not(grouped, "recompute", "full", equal_prices(grouped, Deck(()))).plan
    assert other is not None
    assert other.candidate.knobs == replace(knobs, recompute="full")


@pytest.mark.parametrize(("name", "value"), [("pp_schedule", "dual_pipe_v"), ("pin_memory", False), ("bucket_cap_mb", 50)])
def test_a_setting_without_effect_in_the_plan_is_equal(name: str, value: KnobValue) -> None:
    plan = best(Request(model="1b", gpus="8xH100", fix={"pp": 1, "dp_shard": 8, "offload": "none", "checkpoint": "sync"}))
    alternative = api.why_not(plan, name, value)
    assert alternative.obstacle is Obstacle.EQUAL
    assert alternative.text == "nothing in this plan depends on it"


def test_an_explanation_states_the_share_of_the_physical_limit(large_explained: Explanation) -> None:
    console = Console(width=200, file=StringIO())
    console.print(explanation_report(large_explained))
    assert "of the physical limit; bound by matmuls and attention" in console.file.getvalue()  # type: ignore[attr-defined]
