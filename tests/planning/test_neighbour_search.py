"""Why not as a search: the best plan of the request with one more setting fixed, consistent with the answer."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from formats.plans import deck

from planning.plans import best
from strategist import api
from strategist.contract import codec
from strategist.contract.explanation import Obstacle, WhyNot
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.search.needed_candidates import NEAR_TIE

TINY = Request(model="tiny", gpus="4xcpu", workload=Workload(seq_len=128, global_batch=16))
SMALL = (
    TINY,
    Request(model="8b", gpus="8xH100"),
    Request(model="32b", gpus="8x24GB"),
    replace(TINY, objective="memory"),
)
LARGE = (
    Request(model="405b", gpus="64x8xH100", fix={"pp": 8}),
    Request(model="405b", gpus="64x8xH100"),
    Request(model="70b", gpus="4x8xH100", workload=Workload(seq_len=8192)),
    Request(model="deepseek-v3", gpus="64x8xH100"),
)


def objective_value(plan: Plan, request: Request) -> float:
    """The figure that the objective minimises."""
    return plan.estimate.peak_memory_bytes if request.objective == "memory" else plan.estimate.step_seconds


def fixed(request: Request, other: WhyNot) -> Request:
    return replace(request, fix={**request.fix, other.setting: other.value})


@pytest.mark.parametrize(
    "request_",
    [pytest.param(item, marks=() if item is SMALL[2] else pytest.mark.full) for item in (*SMALL, *LARGE)],
)
def test_a_better_rejected_value_is_reachable_with_fix(request_: Request) -> None:
    """With 32b there are such values; of a tiny model there are none."""
    plan = best(request_)
    for other in (other for decision in api.explain(plan).decisions for other in decision.why_not):
        if other.plan is None or other.obstacle in (Obstacle.TOO_LARGE, Obstacle.HOST_TOO_SMALL):
            continue
        if (
            objective_value(other.plan, request_) * (1 + NEAR_TIE) < objective_value(plan, request_)
            and other.obstacle is not Obstacle.FORBIDDEN
        ):
            assert "it was not searched" in other.text
            assert f"; --fix {other.setting}={show_value(other.value)} gets it" in other.text
            assert best(fixed(request_, other)) == replace(other.plan, request=fixed(request_, other))


@pytest.mark.parametrize(
    ("request_", "name", "value"),
    [(SMALL[1], "tp", 4), (SMALL[2], "tp", 8), pytest.param(LARGE[0], "pp_virtual_stages", 6, marks=pytest.mark.full)],
)
def test_why_not_compares_with_the_best_plan_that_has_the_value(request_: Request, name: str, value: KnobValue) -> None:
    found = api.why_not(best(request_), name, value)
    assert found.plan == best(replace(request_, fix={**request_.fix, name: value}))
    assert f"the best plan with {name}={show_value(value)} takes " in found.text.replace("The", "the")
    assert f"(fits, probability {found.plan.estimate.shown_confidence:.0%})" in found.text


def test_a_slower_value_names_the_part_of_the_step_that_grows() -> None:
    assert re.search(r"tp communication [0-9.]+ min more", api.why_not(best(SMALL[2]), "tp", 8).text)


def test_a_value_without_legal_candidates_names_the_rule_or_the_card(tmp_path: Path) -> None:
    plan = best(SMALL[1])
    assert api.why_not(plan, "tp", 3).text == "tp 3 must divide the 8 devices"
    card = "StrategyCard:\n  id: MY-001\n  module: tp\n  intent: A test\n  policies:\n"
    (tmp_path / "mine.yaml").write_text(card + "    - {id: p, forbid: {tp: 4}, because: Mine.}\n", encoding="utf-8")
    found = api.why_not(plan, "tp", 4, cards=[tmp_path])
    assert (found.obstacle, found.card, found.policy) == (Obstacle.FORBIDDEN, "MY-001", "p")
    assert found.text == "MY-001/p rules it out: Mine. With --without MY-001 there are candidates"


def test_compared_plans_respect_the_request() -> None:
    request = replace(SMALL[1], fix={"offload": "none", "dp_replicate": 1, "pp": 1, "cp": 1}, confidence=0.99, without=("AC-001",))
    plan = best(request, deck().without("AC-001"))
    assert plan.request == request
    found = api.why_not(plan, "tp", 4).plan
    assert found is not None
    assert (found.candidate.knobs.offload, found.candidate.layout.dp_replicate) == ("none", 1)
    assert found.estimate.fit_confidence >= 0.99
    report = api.report(plan)
    assert report.plans[0] == plan
    assert {other.candidate.layout.dp_replicate for other in report.plans} == {1}
    assert "--without" in report.command


def test_plan_ids_do_not_depend_on_the_request() -> None:
    plan = best(TINY)
    assert replace(plan, request=None).identified().id == plan.id
    assert best(replace(TINY, confidence=0.6)).id == plan.id


def test_a_plan_inside_another_document_is_a_valid_plan_file() -> None:
    answer = api.plan(TINY, top=2)
    inside = codec.encode(answer)["plans"][1]
    assert codec.loads(Plan, json.dumps(inside)) == answer.plans[1]
