"""Communication by mesh axis: real processes with gloo, and NCCL kernels as the profiler describes them."""

import json
from dataclasses import dataclass, field, replace

import pytest
import torch
from strategist_runtime.compat.shadow import STAND_IN
from strategist_runtime.measure.collectives import GROUP, Collective, on_device, on_host
from strategist_runtime.measure.parts import collectives_by_axis, exposed_by_axis as exposed, pipeline_waits as waits
from strategist_runtime.mesh import axis_of

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome

from ..launch import forked, records, trial_arguments
from ..plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]
MODEL = replace(TINY, layers=4, hidden_size=128, heads=8, kv_heads=8, head_size=16, ffn_size=384)


@pytest.mark.full
@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        (Layout(dp_replicate=2, tp=2), {"dp_replicate", "tp", "world"}),
        (Layout(dp_replicate=2, dp_shard=2), {"dp_replicate", "dp_shard", "world"}),
    ],
)
def test_exposed_communication_is_assigned_to_its_axes(layout, axes, tmp_path):
    """Total exposed communication is assigned to some axis, except for the short time in which two axes communicate at once."""
    trial_plan = plan(
        layout=layout, knobs=Knobs(sequence_parallel=layout.tp > 1), model=MODEL, workload=replace(WORKLOAD, seq_len=64)
    )
    done = forked(4, trial_arguments(trial_plan, tmp_path))
    assert done.returncode == 0, done.stderr
    for record in records(tmp_path):
        by_axis, exposed = record.exposed_seconds_by_axis, record.exposed_communication_seconds
        assert record.outcome is Outcome.OK
        assert axes <= set(by_axis) <= axes | {"dp_shard"}  # with tp, FSDP2 shards the parameters over a single rank
        assert 0.7 * exposed < sum(by_axis.values()) <= exposed + 1e-9
        assert all(by_axis[axis] > 0 for axis in axes)
        assert (record.pipeline_waits, record.compute_seconds > 0) == ((), True)


def test_pipeline_waits_are_measured_on_the_waiting_stage(tmp_path):
    done = forked(4, ["runtime.axes_rank", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(4)]
    for working, waiting in ((found[0], found[2]), (found[1], found[3])):
        assert working["compute_seconds"] > 3 * waiting["compute_seconds"]
        assert len(working["pipeline_waits"]) == len(waiting["pipeline_waits"]) == 4  # three messages, one reduction over all
        assert sum(waiting["pipeline_waits"][:3]) > 0.3 * working["compute_seconds"]
        assert sum(waiting["pipeline_waits"][:3]) == pytest.approx(waiting["exposed_seconds_by_axis"]["pp"], rel=0.1)
        assert working["shortest_transfer_seconds"] < 0.1 * sum(waiting["pipeline_waits"][:3])
        assert working["exposed_seconds_by_axis"]["tp"] > 0


@dataclass(frozen=True, kw_only=True)
class Event:
    """A profiler event, with times in nanoseconds."""

    title: str
    begin: int
    end: int
    thread: int = 1
    cuda: bool = False
    own: int = 0
    link: int = 0
    meta: dict = field(default_factory=dict)
    annotation: bool = False
    sequence: int = -1
    stream: int = 7

    def device_resource_id(self):
        return self.stream

    def name(self):
        return self.title

    def start_ns(self):
        return self.begin

    def duration_ns(self):
        return self.end - self.begin

    def start_thread_id(self):
        return self.thread

    def device_type(self):
        return torch.autograd.DeviceType.CUDA if self.cuda else torch.autograd.DeviceType.CPU

    def correlation_id(self):
        return self.own

    def linked_correlation_id(self):
        return self.link

    def extra_meta(self):
        """Like torch: strings in quotation marks (torch/csrc/profiler/util.cpp: saveNcclMeta)."""
        return {"Group size": "2", **{key: f'"{value}"' for key, value in self.meta.items()}}

    def is_user_annotation(self):
        return self.annotation

    def sequence_nr(self):
        return self.sequence


def exposed_by_axis(found, computation):
    return exposed(collectives_by_axis(found, str), computation)


def pipeline_waits(found, computation):
    return waits(collectives_by_axis(found, str), computation)


def test_nccl_kernels_belong_to_the_group_of_their_launching_call():
    events = [
        Event(title="record_param_comms", begin=0, end=5, own=7, meta={GROUP: "mesh_tp", "Collective name": "allreduce"}),
        Event(title="ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin=10, end=30, cuda=True, link=7),
        Event(title="ncclDevKernel_Broadcast", begin=40, end=50, cuda=True, link=8, stream=9),
        Event(title="ampere_sgemm_128x64", begin=20, end=60, cuda=True, link=9),
    ]
    found = on_device(events)
    assert [(piece.group, piece.interval) for piece in found.collectives] == [("mesh_tp", (10, 30)), (None, (40, 50))]
    assert found.computation == [(20, 60)]


def test_gloo_events_count_as_collectives_on_a_shared_gpu():
    events = [
        Event(title="gloo:all_reduce", begin=10, end=30, thread=3),
        Event(title="gloo:send", begin=30, end=40),
        Event(title="ampere_sgemm_128x64", begin=20, end=60, cuda=True),
    ]
    found = on_device(events, [(5, "gloo:all_reduce", "mesh_tp")])
    assert [(piece.group, piece.interval) for piece in found.collectives] == [("mesh_tp", (10, 30)), ("mesh_pp", (30, 40))]


def test_nccl_kernels_without_a_call_belong_to_the_group_of_their_stream():
    """Batched messages are launched at the end of their group, outside of the call that names it."""
    nccl = {"begin": 10, "end": 30, "cuda": True}
    events = [
        Event(title="record_param_comms", begin=0, end=5, own=7, meta={GROUP: "mesh_ep"}),
        Event(title="ncclDevKernel_SendRecv", link=7, stream=20, **nccl),
        Event(title="ncclDevKernel_SendRecv", link=8, stream=20, **nccl),
        Event(title="ncclDevKernel_SendRecv", link=9, stream=30, **nccl),
    ]
    assert [piece.group for piece in on_device(events).collectives] == ["mesh_ep", "mesh_ep", "mesh_pp"]


def test_device_annotations_are_ignored_and_copies_are_counted_separately():
    events = [
        Event(title="FSDP::all_gather", begin=0, end=90, cuda=True, annotation=True),
        Event(title="Memcpy HtoD (Pinned -> Device)", begin=5, end=9, cuda=True),
        Event(title="sm90_xmma_gemm_bf16", begin=20, end=60, cuda=True, link=9),
    ]
    found = on_device(events)
    assert (found.computation, found.copies, found.collectives) == ([(20, 60)], [(5, 9)], [])


def test_a_kernels_kind_is_that_of_its_launching_operator():
    events = [
        Event(title="aten::addmm", begin=0, end=5, own=1, sequence=3),
        Event(title="autograd::engine::evaluate_function: AddmmBackward0", begin=10, end=20),
        Event(title="aten::addmm", begin=11, end=13, own=2, sequence=4),
        Event(title="aten::mm", begin=15, end=17, own=3),
        Event(title="aten::_flash_attention_backward", begin=18, end=19, own=4),
        Event(title="Optimizer.step#AdamW.step", begin=30, end=40),
        Event(title="aten::_fused_adamw_", begin=31, end=35, own=5),
        *(Event(title="kernel", begin=100 * link, end=100 * link + 10, cuda=True, link=link) for link in range(1, 6)),
    ]
    kinds = on_device(events).kinds
    assert kinds == {
        "matmul": [(100, 110), (300, 310)],
        "recompute": [(200, 210)],
        "attention": [(400, 410)],
        "optimizer": [(500, 510)],
    }


def test_compiled_attention_is_recognised_by_its_kernel_name():
    events = [
        Event(title="## Call CompiledFxGraph abc ##", begin=0, end=50, own=1),
        Event(title="triton_tem_fused_flex_attention_0", begin=100, end=110, cuda=True, link=1),
        Event(title="triton_poi_fused_add_0", begin=200, end=210, cuda=True, link=1),
    ]
    assert on_device(events).kinds == {"optimizer": [], "recompute": [], "attention": [(100, 110)], "matmul": []}


def test_correlation_ids_of_cuda_calls_are_not_taken_for_those_of_operators():
    """A CUDA call that launches an optimizer kernel can have the id of a matmul operator. Kineto calls those that it does not know
    INVALID (cupti_strings.cpp).
    """
    events = [
        Event(title="aten::mm", begin=0, end=5, own=1),
        Event(title="Optimizer.step#AdamW.step", begin=30, end=40),
        Event(title="aten::_fused_adamw_", begin=31, end=35, own=2),
        Event(title="cudaLaunchKernel", begin=32, end=33, own=1, link=2),
        Event(title="cuLaunchKernelEx", begin=33, end=34, own=1),
        Event(title="INVALID", begin=34, end=35, own=1, link=2),
        Event(title="gemm", begin=100, end=110, cuda=True, link=1),
    ]
    assert on_device(events).kinds["matmul"] == [(100, 110)]
    assert on_device(events).kinds["optimizer"] == []


def test_stand_ins_of_collectives_count_as_collectives_not_as_compute():
    events = [
        Event(title=STAND_IN, begin=10, end=20, annotation=True),
        Event(title="aten::copy_", begin=11, end=12, own=1),
        Event(title="aten::copy_", begin=30, end=31, own=2),
        Event(title=STAND_IN, begin=100, end=110, cuda=True, annotation=True),
        Event(title="elementwise_kernel", begin=100, end=110, cuda=True, link=1),
        Event(title="Memcpy DtoD (Device -> Device)", begin=300, end=310, cuda=True, link=2),
    ]
    found = on_device(events)
    assert [(piece.group, piece.interval) for piece in found.collectives] == [(STAND_IN, (100, 110))]
    assert found.computation == [(300, 310)]
    events = [
        Event(title="c10d::_allgather_base_", begin=5, end=25),
        Event(title=STAND_IN, begin=10, end=20, annotation=True),
        Event(title="aten::copy_", begin=11, end=19),
        Event(title="aten::mm", begin=30, end=60),
    ]
    found = on_host(events, ())
    assert [(piece.group, piece.interval) for piece in found.collectives] == [(STAND_IN, (10, 20))]
    assert found.computation == [(30, 60)]


def test_gloo_threads_are_assigned_to_groups_by_preceding_calls():
    """Thread 3 starts one event after a call of another group, and still belongs to its own group."""
    calls = [
        (0, "gloo:all_reduce", "mesh_dp_shard"),
        (100, "gloo:all_reduce", "mesh_dp_shard"),
        (300, "gloo:all_reduce", "mesh_tp"),
    ]
    calls += [(190, "gloo:all_reduce", "mesh_dp_shard"), (195, "gloo:all_reduce", "mesh_tp")]
    events = [
        Event(title="gloo:all_reduce", begin=begin, end=begin + 9, thread=thread)
        for begin, thread in ((10, 3), (110, 3), (200, 3), (201, 4), (310, 4))
    ]
    assert [piece.group for piece in on_host(events, calls).collectives] == ["mesh_dp_shard"] * 3 + ["mesh_tp"] * 2


def test_gloo_point_to_point_belongs_to_the_pipeline():
    events = [Event(title="gloo:recv", begin=0, end=10), Event(title="aten::mm", begin=10, end=30)]
    found = on_host(events, [])
    assert ([piece.group for piece in found.collectives], found.computation) == (["mesh_pp"], [(10, 30)])


def piece(begin: int, end: int, group: str | None, name: str = "x") -> Collective:
    return Collective(interval=(begin * 10**9, end * 10**9), name=name, group=group)


def test_time_with_two_communicating_axes_is_assigned_to_neither():
    found = [piece(0, 10, "tp"), piece(5, 20, "dp_shard")]
    assert exposed_by_axis(found, [(0, 2 * 10**9)]) == {"tp": 3.0, "dp_shard": 10.0}
    assert exposed_by_axis([], []) == {}


def test_an_unknown_group_makes_all_axes_unknown():
    found = [piece(0, 10, "tp"), piece(20, 30, None)]
    assert (exposed_by_axis(found, []), pipeline_waits(found, [])) == (None, (None, None))


def test_pipeline_waits_are_transfer_times_without_compute():
    found = [piece(0, 2, "pp"), piece(10, 20, "pp"), piece(15, 22, "pp"), piece(30, 34, "world", "sum")]
    assert pipeline_waits(found, []) == ((2.0, 10.0, 2.0, 4.0), 2.0)
    assert pipeline_waits(found, [(12 * 10**9, 14 * 10**9)]) == ((2.0, 8.0, 2.0, 4.0), 2.0)
    assert pipeline_waits([*found, piece(0, 1, "tp")], []) == ((1.0, 10.0, 2.0, 4.0), 2.0)


def test_without_a_pipeline_there_are_no_pipeline_waits():
    assert pipeline_waits([piece(0, 10, "tp"), piece(20, 30, "world")], []) == ((), None)


@pytest.mark.parametrize(
    ("group", "layout", "axis"),
    [
        ("mesh_tp", Layout(dp_shard=2, tp=2), "tp"),
        ("mesh_dp_replicate", Layout(dp_replicate=2, dp_shard=2), "dp_replicate"),
        ("mesh_dp_shard_cp", Layout(dp_shard=2, cp=2), "dp_shard"),
        ("mesh_ep", Layout(dp_shard=4, ep=2), "ep"),
        ("mesh_dim_0", Layout(dp_shard=4), "dp_shard"),
        ("default_pg", Layout(dp_replicate=4), "dp_replicate"),
        ("default_pg", Layout(dp_shard=2, tp=2), "world"),
        ("mesh_default", Layout(dp_shard=4), "dp_shard"),
    ],
)
def test_process_groups_are_mapped_to_mesh_axes(group, layout, axis):
    assert axis_of(group, layout) == axis


def test_a_compiled_layer_counts_as_compute_except_for_its_collectives():
    inside = [
        Event(title="## Call CompiledFxGraph f00 ##", begin=0, end=100),
        Event(title="_c10d_functional::wait_tensor", begin=40, end=60),
    ]
    assert on_host(inside, []).computation == [(0, 40), (60, 100)]
