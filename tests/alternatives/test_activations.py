"""Activation offload as an alternative: named with its gain, and only where there is a gain."""

from typing import Any

import pytest
from planning.plans import best

from strategist import api
from strategist.contract.answer import Alternative, Answer
from strategist.contract.request import Request
from strategist.contract.workload import Workload

LONG = Workload(seq_len=131072, global_batch=8)
FEW: dict[str, Any] = {"pp": 1, "compile": True}
"""Fixed settings that leave few candidates, among them those compared here."""


def plan(**request: Any) -> Answer:
    return api.plan(Request(**{"model": "13b", **request}), top=1)


def alternatives(found: Answer) -> list[Alternative]:
    return [other for other in found.alternatives if other.title == "activations in host memory"]


def test_offload_without_recomputation_is_faster_for_long_sequences() -> None:
    before = plan(gpus="8xH100", workload=LONG, fix=FEW)
    (other,) = alternatives(before)
    fix = dict(word.split("=") for word in other.flags[1::2])
    assert fix == {"activation_offload": "true", "recompute": "none", "offload": "none"}
    assert other.plan.estimate.host_memory_bytes_per_node > 0
    assert not other.changes_convergence
    offloads = {"activation_offload": True, "recompute": "none", "offload": "none"}
    assert best(Request(model="13b", gpus="8xH100", workload=LONG, fix={**FEW, **offloads})).id == other.plan.id
    assert other.plan.estimate.tokens_per_second > 1.05 * before.plans[0].estimate.tokens_per_second


def test_if_no_plan_fits_activation_offload_goes_with_full_recomputation() -> None:
    tight = Workload(seq_len=524288, global_batch=8)
    found = plan(model="1b", gpus="8x24GB", workload=tight, fix={"offload": "optimizer", "dp_shard": 8})
    assert not found.plans
    assert all(
        other.plan.candidate.knobs.recompute == "full"
        for other in found.alternatives
        if other.flags[1:2] == ("activation_offload=true",)
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"gpus": "8xH100", "fix": FEW},
        {"gpus": "8xH100", "workload": LONG, "fix": {**FEW, "activation_offload": False}},
        {"gpus": "8xH100", "workload": LONG, "fix": {**FEW, "recompute": "full"}},
        {"gpus": "8x24GB", "fix": {"tp": 1, "cp": 1, "compile": True}},
    ],
    ids=["no gain", "ruled out", "recomputation fixed", "streamed"],
)
def test_activation_offload_is_not_named_without_a_gain(request_: dict[str, Any]) -> None:
    assert alternatives(plan(**request_)) == []
