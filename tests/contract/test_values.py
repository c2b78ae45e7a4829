"""Workload, request, cluster, estimate and plan: validation and derived values."""

from dataclasses import replace

import pytest

from contract.samples import CLUSTER, DEVICE, ESTIMATE, MEMORY, PLAN, TIME
from strategist.contract.cluster import Curve, NodeGroup
from strategist.contract.estimate import MemoryParts, TimeParts
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seq_len": 0}, "--seq-len 0"),
        ({"global_batch": -4}, "--global-batch -4"),
        ({"lora_rank": 0}, "--lora-rank 0"),
        ({"document_tokens": -1}, "--document-tokens -1"),
        ({"precision": "int4"}, "--precision int4.*bf16"),
        ({"optimizer": "lion"}, "--optimizer lion.*adamw"),
        ({"train": "half"}, "--train half.*qlora"),
    ],
)
def test_an_invalid_workload_names_the_option(change, words):
    with pytest.raises(InputError, match=words):
        Workload(**change)


def test_tokens_per_step_are_sequence_length_times_batch():
    assert Workload(seq_len=10, global_batch=7).tokens_per_step == 70


@pytest.mark.parametrize("window", [0, 16, 100, 500, 1000])
def test_visible_tokens_are_the_mean_over_the_positions_of_all_documents(window):
    def mean(lengths: range) -> float:
        pairs = sum(min(position, window or position) for length in lengths for position in range(1, length + 1))
        return pairs / sum(lengths)

    assert Workload(seq_len=512).visible_tokens(window) == pytest.approx(mean(range(512, 513)), abs=1)
    assert Workload(seq_len=4096, document_tokens=300).visible_tokens(window) == pytest.approx(mean(range(1, 600)), abs=1)


def test_an_unknown_objective_is_refused():
    with pytest.raises(InputError, match=r"--objective fun.*throughput"):
        Request(model="a", gpus="b", objective="fun")


@pytest.mark.parametrize("points", [(), ((0.0, 0.5),), ((1e9, 0.5), (1e6, 0.6)), ((1e6, 0.5), (1e6, 0.6)), ((1e6, 0.0),)])
def test_curve_points_must_rise_in_size_and_be_positive(points):
    with pytest.raises(InputError, match="curve"):
        Curve(points=points, origin="assumed: a test")


def test_a_device_needs_an_fp32_peak_and_consistent_memory():
    with pytest.raises(InputError, match="fp32"):
        replace(DEVICE, peak_flops={"bf16": 1.0})
    with pytest.raises(InputError, match="usable_memory_bytes 1001"):
        replace(DEVICE, usable_memory_bytes=1001)
    assert DEVICE.peak("bf16") == 4e12
    assert DEVICE.peak("fp8") == DEVICE.peak("fp32") == 1e12


def test_a_cluster_needs_at_least_one_device():
    assert CLUSTER.devices == 4
    with pytest.raises(InputError, match="at least one device"):
        replace(CLUSTER, nodes=0)


def test_totals_are_the_sums_of_their_parts():
    assert MEMORY.total == 36
    assert MemoryParts(**{**vars(MEMORY), "logits": 106.0}).total == 136
    assert TIME.total == pytest.approx(1.8)
    assert TIME.exposed_communication == pytest.approx(0.3)
    assert TimeParts(**{**vars(TIME), "bubble": 1.0}).exposed_communication == pytest.approx(0.3)


def test_an_estimate_fits_up_to_its_capacity():
    assert ESTIMATE.fits
    assert replace(ESTIMATE, peak_memory_bytes=900.0).fits
    assert not replace(ESTIMATE, peak_memory_bytes=901.0).fits


def test_the_plan_id_is_a_digest_of_its_content():
    assert PLAN.id == PLAN.identified().id
    assert len(PLAN.id) == 12
    assert replace(PLAN, id="other").identified() == PLAN
    assert replace(PLAN, workload=Workload(seq_len=256, global_batch=8)).identified().id != PLAN.id
    assert PLAN.accumulation == 1


def pipeline(split, layers=(), **cluster):
    candidate = Candidate(layout=Layout(pp=3), knobs=Knobs(), options=Options(pp_split=split))
    estimate = replace(ESTIMATE, pipeline_layers=layers)
    return replace(PLAN, candidate=candidate, estimate=estimate, cluster=replace(CLUSTER, **cluster))


def test_stage_layers_are_even_unless_the_estimate_has_others():
    assert pipeline("even").stage_layers == (2, 1, 1)
    assert pipeline("weighted", (1, 2, 1)).stage_layers == (1, 2, 1)


def test_options_of_ddp_act_only_where_replicas_are_whole_models():
    whole = Layout(dp_replicate=4)
    layouts = (whole, Layout(dp_shard=4), *(replace(whole, dp_replicate=2, **{axis: 2}) for axis in ("dp_shard", "tp", "pp", "cp")))
    acting = [layout for layout in layouts if Candidate(layout=layout, knobs=Knobs()).acts("bucket_cap_mb", PLAN.model)]
    assert acting == [whole]


def test_pp_split_matters_only_if_it_changes_the_stages():
    assert pipeline("even").matters("pp_split")
    assert pipeline("weighted", (1, 2, 1)).matters("pp_split")
    assert not pipeline("weighted").matters("pp_split"), "the stages are even"
    assert not PLAN.matters("pp_split"), "there is no pipeline"
    unlike = (NodeGroup(nodes=CLUSTER.nodes, device=DEVICE, intra=CLUSTER.intra, inter=CLUSTER.inter, speed=0.5),)
    assert not pipeline("even", (2, 1, 1), groups=unlike).matters("pp_split"), "stages follow the speed of their devices"
