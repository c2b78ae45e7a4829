"""What may change the trained model: left alone, named with its gain, and taken when it is allowed."""

from dataclasses import replace
from typing import Any

import pytest

from strategist import api
from strategist.alternatives.convergence import TITLES
from strategist.contract.answer import Answer
from strategist.contract.knobs import CONVERGENCE_KNOBS
from strategist.contract.request import CONVERGENCE, Request
from strategist.contract.settings import value_of
from strategist.contract.workload import Workload

HOPPER = Request(model="8b", gpus="8xH100")
DDP = Request(model="1b", gpus="4x8xA10G", fix={"dp_replicate": 32}, workload=Workload(global_batch=32, seq_len=1024))
PIPELINE = Request(model="8b", gpus="8xH100", fix={"pp": 8, "pp_schedule": "1f1b"}, workload=Workload(global_batch=16))
TIGHT = Request(model="8b", gpus="8xV100-32GB", workload=Workload(global_batch=64, seq_len=2048))
"""Little device memory: smaller states leave room for a faster layout."""

ANSWERS: dict[str, Answer] = {}


def plan(request: Request, **change: Any) -> Answer:
    """Equal requests have equal answers, and are asked once."""
    asked = replace(request, **change)
    if repr(asked) not in ANSWERS:
        ANSWERS[repr(asked)] = api.plan(asked, top=1)
    return ANSWERS[repr(asked)]


def allowing(found: Answer) -> dict[str, float]:
    """Tokens/s of the ways that change convergence, by the name of what they allow or of their option."""
    named = {"--allow": 1, "--global-batch": 0}
    return {
        other.flags[named[other.flags[0]]].strip("-").replace("-", "_"): other.plan.estimate.tokens_per_second
        for other in found.alternatives
        if other.flags[:1] and other.flags[0] in named
    }


@pytest.mark.parametrize("request_", [HOPPER, DDP, PIPELINE], ids=["float8", "replicas", "pipeline"])
def test_nothing_that_changes_convergence_is_taken_unasked(request_: Request) -> None:
    found = plan(request_)
    assert found.changes_convergence == ()
    for name, neutral in CONVERGENCE_KNOBS.items():
        assert value_of(found.plans[0].candidate, name) == neutral
    assert found.plans[0].workload == request_.workload


@pytest.mark.parametrize(
    ("request_", "name"), [(HOPPER, "float8"), (DDP, "comm_hook"), (PIPELINE, "global_batch"), (TIGHT, "optimizer")]
)
def test_what_allowing_it_would_gain_is_named_and_true(request_: Request, name: str) -> None:
    gain = allowing(plan(request_))[name]
    taken = plan(request_, allow=(name,))
    assert taken.changes_convergence
    assert taken.changes_convergence[0].startswith(f"{name} ")
    assert taken.plans[0].estimate.tokens_per_second >= gain > 1.05 * plan(request_).plans[0].estimate.tokens_per_second
    assert name not in allowing(taken)


def test_an_allowed_optimizer_makes_room() -> None:
    tight = Request(model="13b", gpus="8x24GB", workload=Workload(global_batch=64))
    taken = plan(tight, allow=("optimizer",))
    assert taken.plans[0].workload.optimizer == "adamw8bit"
    assert taken.changes_convergence == ("optimizer adamw8bit",)
    assert taken.plans[0].estimate.tokens_per_second > plan(tight).plans[0].estimate.tokens_per_second


def test_what_the_device_or_the_layout_cannot_use_is_not_named() -> None:
    assert "float8" not in allowing(plan(Request(model="8b", gpus="8xA100-80GB")))
    assert "comm_hook" not in allowing(plan(HOPPER))


def test_what_is_fixed_is_said_to_change_convergence() -> None:
    assert plan(HOPPER, fix={"float8": "rowwise"}).changes_convergence == ("float8 rowwise",)


def test_everything_that_can_be_allowed_has_a_meaning() -> None:
    for name in CONVERGENCE:
        assert plan(HOPPER, allow=(name,)).plans


def test_each_knob_that_changes_convergence_has_words_for_its_gain() -> None:
    assert set(TITLES) == set(CONVERGENCE_KNOBS)


def test_a_larger_batch_is_named_by_the_option_that_gives_it() -> None:
    (other,) = [other for other in plan(PIPELINE).alternatives if "sequences a step" in other.title]
    assert other.flags == ("--global-batch", other.title.split()[0])
    again = plan(PIPELINE, workload=replace(PIPELINE.workload, global_batch=int(other.flags[1])))
    assert again.plans[0].id == other.plan.id
