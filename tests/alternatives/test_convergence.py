"""Settings that change the trained model: unused by default, named with their gain, and used once allowed."""

from dataclasses import replace
from typing import Any

import pytest
from planning.plans import answer_of, best

from strategist import api
from strategist.alternatives.convergence import TITLES
from strategist.contract.answer import Answer
from strategist.contract.knobs import CONVERGENCE_KNOBS
from strategist.contract.request import CONVERGENCE, Request
from strategist.contract.settings import value_of
from strategist.contract.workload import Workload

FEW: dict[str, Any] = {"pp": 1, "compile": True}
"""Fixed settings that leave a third of the candidates."""
HOPPER = Request(model="8b", gpus="8xH100", fix=FEW)
DDP = Request(model="1b", gpus="4x8xA10G", fix={"dp_replicate": 32}, workload=Workload(global_batch=32, seq_len=1024))
PIPELINE = Request(model="8b", gpus="8xH100", fix={"pp": 8, "pp_schedule": "1f1b"}, workload=Workload(global_batch=16))
TIGHT = Request(model="14b", gpus="8xA100-40GB", fix=FEW, workload=Workload(global_batch=64, seq_len=4096))
"""Little device memory: smaller states leave room for a faster layout."""

ANSWERS: dict[str, Answer] = {}


def plan(request: Request, **change: Any) -> Answer:
    """The answer to a request; equal requests are answered once."""
    changed = replace(request, **change)
    if repr(changed) not in ANSWERS:
        ANSWERS[repr(changed)] = api.plan(changed, top=1)
    return ANSWERS[repr(changed)]


def gains_by_allowed_name(found: Answer) -> dict[str, float]:
    """Tokens/s of alternatives that change convergence, by the name of the allowed setting or of the option."""
    named = {"--allow": 1, "--global-batch": 0}
    return {
        other.flags[named[other.flags[0]]].strip("-").replace("-", "_"): other.plan.estimate.tokens_per_second
        for other in found.alternatives
        if other.flags[:1] and other.flags[0] in named
    }


@pytest.mark.parametrize("request_", [HOPPER, DDP, PIPELINE], ids=["float8", "replicas", "pipeline"])
def test_settings_that_change_convergence_are_not_used_by_default(request_: Request) -> None:
    found = plan(request_)
    assert found.changes_convergence == ()
    for name, neutral in CONVERGENCE_KNOBS.items():
        assert value_of(found.plans[0].candidate, name) == neutral
    assert found.plans[0].workload == request_.workload


@pytest.mark.parametrize(
    ("request_", "name"), [(HOPPER, "float8"), (DDP, "comm_hook"), (PIPELINE, "global_batch"), (TIGHT, "optimizer")]
)
def test_the_named_gain_of_allowing_a_setting_is_reached(request_: Request, name: str) -> None:
    gain = gains_by_allowed_name(plan(request_))[name]
    allowed = plan(request_, allow=(name,))
    assert allowed.changes_convergence
    assert allowed.changes_convergence[0].startswith(f"{name} ")
    assert allowed.plans[0].estimate.tokens_per_second >= gain > 1.05 * plan(request_).plans[0].estimate.tokens_per_second
    assert name not in gains_by_allowed_name(allowed)


def test_allowing_the_optimizer_uses_8_bit_states() -> None:
    tight = Request(model="13b", gpus="8x24GB", workload=Workload(global_batch=64))
    allowed = answer_of(replace(tight, allow=("optimizer",)), top=1)
    assert allowed.plans[0].workload.optimizer == "adamw8bit"
    assert allowed.changes_convergence == ("optimizer adamw8bit",)
    assert allowed.plans[0].estimate.tokens_per_second > best(tight).estimate.tokens_per_second


def test_settings_that_device_or_layout_do_not_support_are_not_named() -> None:
    assert "float8" not in gains_by_allowed_name(plan(replace(HOPPER, gpus="8xA100-80GB")))
    assert "comm_hook" not in gains_by_allowed_name(plan(HOPPER))


def test_a_fixed_setting_is_reported_as_changing_convergence() -> None:
    assert answer_of(replace(HOPPER, fix={"float8": "rowwise"}), top=1).changes_convergence == ("float8 rowwise",)


def test_every_name_of_allow_gives_a_plan() -> None:
    for name in CONVERGENCE:
        assert best(replace(HOPPER, allow=(name,), fix={"pp": 1, "tp": 1})).estimate.fits


def test_each_knob_that_changes_convergence_has_a_title() -> None:
    assert set(TITLES) == set(CONVERGENCE_KNOBS)


def test_a_larger_batch_is_named_by_the_option_that_gives_it() -> None:
    (other,) = [other for other in plan(PIPELINE).alternatives if "sequences a step" in other.title]
    assert other.flags == ("--global-batch", other.title.split()[0])
    again = plan(PIPELINE, workload=replace(PIPELINE.workload, global_batch=int(other.flags[1])))
    assert again.plans[0].id == other.plan.id
