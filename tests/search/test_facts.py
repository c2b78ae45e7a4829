"""Facts: one for each name of the vocabulary, with correct values."""

from dataclasses import replace

import pytest
from contract.samples import ESTIMATE, MEASUREMENT

from strategist.contract.measurement import Outcome
from strategist.contract.workload import Workload
from strategist.expr.vocabulary import CANDIDATE, VOCABULARY
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.search.facts import estimate_facts, observed_facts, situation_facts

MODEL = resolve_model("8b").shape
ON = resolve_cluster("2x8xH100")


def names(*parts: str) -> set[str]:
    return {name for name, entry in VOCABULARY.items() if name.partition(".")[0] in parts and entry.phase != CANDIDATE}


def test_every_name_of_the_vocabulary_has_a_fact() -> None:
    assert set(situation_facts(MODEL, ON, Workload())) == names("model", "workload", "device", "cluster")
    assert set(estimate_facts(ESTIMATE)) == names("estimate")
    assert set(observed_facts(MEASUREMENT, ON)) == names("observed")


def test_situation_facts_equal_the_profiles() -> None:
    facts = situation_facts(MODEL, ON, Workload(precision="bf16"))
    assert facts["model.parameter_bytes"] == 2 * MODEL.parameters
    assert facts["model.state_bytes"] == 16 * MODEL.parameters
    assert facts["cluster.devices"] == 16
    assert facts["device.peak_flops"] == ON.device.peak_flops["bf16"]
    assert (facts["model.is_moe"], facts["model.experts"]) == (False, 0)


def test_unstated_host_memory_is_unknown() -> None:
    for stated in (None, 2**39):
        on = replace(ON, host_memory_bytes=stated)
        assert situation_facts(MODEL, on, Workload())["cluster.host_memory_bytes"] == stated


def test_unmeasured_figures_are_unknown() -> None:
    facts = observed_facts(MEASUREMENT, ON)
    assert facts["observed.peak_memory_bytes"] == 33
    assert facts["observed.step_seconds"] == 2.0
    assert facts["observed.comm_ratio"] is None
    assert facts["observed.exposed_tp_comm_ratio"] is None
    failed = replace(MEASUREMENT, outcome=Outcome.OOM, step_seconds=None, peak_memory_bytes=())
    assert {name: value for name, value in observed_facts(failed, ON).items() if value is not None} == {"observed.outcome": "oom"}


@pytest.mark.parametrize(("outcome", "seen"), [(Outcome.CRASH, "crash"), (Outcome.INFRASTRUCTURE, None), (Outcome.REFUSED, None)])
def test_outcomes_that_the_plan_did_not_cause_are_unknown(outcome: Outcome, seen: str | None) -> None:
    assert observed_facts(replace(MEASUREMENT, outcome=outcome), ON)["observed.outcome"] == seen


def test_derived_observed_facts() -> None:
    seen = {"comm_ratio": 0.4, "exposed_comm_ratio": 0.1, "exposed_comm_ratio_by_axis": {"tp": 0.07, "world": 0.03}}
    measured = replace(MEASUREMENT, **seen, peak_memory_bytes=(30, 30, 30, 60))
    facts = observed_facts(measured, replace(ON, device=replace(ON.device, usable_memory_bytes=120)))
    assert facts["observed.exposed_tp_comm_ratio"] == 0.07
    assert facts["observed.exposed_pp_comm_ratio"] == 0.0
    assert facts["observed.overlap_ratio"] == pytest.approx(0.75)
    assert facts["observed.peak_memory_ratio"] == 0.5
    assert facts["observed.memory_imbalance"] == pytest.approx(0.6)


def test_overlap_ratio_is_unknown_without_communication() -> None:
    without_communication = replace(MEASUREMENT, comm_ratio=0.0, exposed_comm_ratio=0.0, exposed_comm_ratio_by_axis={})
    facts = observed_facts(without_communication, ON)
    assert (facts["observed.overlap_ratio"], facts["observed.exposed_dp_shard_comm_ratio"]) == (None, 0.0)


def test_bubble_ratio_is_the_bubbles_share_of_the_step() -> None:
    estimate = replace(ESTIMATE, time=replace(ESTIMATE.time, bubble=0.45))
    assert estimate_facts(estimate)["estimate.bubble_ratio"] == 0.45 / 1.8
