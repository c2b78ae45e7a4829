"""Simulation of one rank: builds its trainer and traces one step of it."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch

from strategist.contract.measurement import TrialSettings
from strategist.contract.pipeline_stages import stages_of_rank
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.contract.simulation import MEMORY_PARTS, SimulatedRank
from strategist_runtime.builder import NativeModelBuilder
from strategist_runtime.compat import simulate as compat_simulate
from strategist_runtime.mesh import Meshes, make_meshes
from strategist_runtime.model.attention_metadata import MetadataBuilder
from strategist_runtime.model.decoder import Decoder, StageSpec
from strategist_runtime.model.rotary import rotary_of
from strategist_runtime.simulate import cuda_kernel_replacements, unsupported
from strategist_runtime.simulate.allocator import Reserved, reserved
from strategist_runtime.simulate.extrapolation import StepSize, extrapolated
from strategist_runtime.simulate.races import Races
from strategist_runtime.simulate.reducer import Logger, Reducer
from strategist_runtime.simulate.repeated_layers import repeat_layers
from strategist_runtime.simulate.timeline import Timeline
from strategist_runtime.simulate.trace_reduction import reduction
from strategist_runtime.simulate.traced_step import Traced, traced
from strategist_runtime.simulate.user_model import UserModel, UserModelBuilder
from strategist_runtime.simulate.virtual_streams import StreamOrder, simulate_streams
from strategist_runtime.training.trainer import make_trainer

DEVICE = torch.device("cpu")
"""The only device on which torch's tensors without values support autograd without a GPU."""


class FakeTensorBuilder(NativeModelBuilder):
    """Builds the native decoder on its device, with the layers of a stage that ``layers`` selects; parameters get no values."""

    def __init__(self, layers: Callable[[Sequence[int]], Sequence[int]]) -> None:
        self._layers = layers

    def build(self, plan: Plan, stage_spec: StageSpec) -> Decoder:
        return Decoder(plan.model, replace(stage_spec, layers=self._layers(stage_spec.layers)))

    def fill(self, model: Decoder, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        seq_len = plan.workload.seq_len
        order = torch.arange(seq_len, device=device)
        model.metadata_builder = MetadataBuilder(rotary_of(plan.model, seq_len, device), order, window=plan.model.sliding_window)


def simulate(plan: Plan, rank: int, *, whole: bool = False, user_model: UserModel | None = None) -> SimulatedRank:
    """Memory and traffic of ``rank`` in a step of ``plan``. The process stays that rank: call it once.

    ``whole``: traces every layer and micro-batch, even if a few of them represent all. ``user_model``: a user's model instead
    of the plan's; all of its layers are traced.
    """
    begin = time.perf_counter()
    unsupported.check(plan, user_model)
    requested_plan, plan = plan, without_compiler(plan)
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    compat_simulate.init_fake_process_group(rank, layout.world_size, gloo=plan.cluster.device.kind == "cpu")
    compat_simulate.replace_reducer(Reducer, Logger)
    order = simulate_streams() if plan.cluster.device.kind != "cpu" else None
    meshes = make_meshes(layout, DEVICE.type, rank, experts=plan.model.moe is not None, offload=knobs.offload)
    reduced = reduction(plan, meshes.stage_rank)

    def trace(size: StepSize) -> Traced:
        builder = FakeTensorBuilder(partial(reduced.layers, size=size)) if user_model is None else UserModelBuilder(user_model)
        return _trace(reduced.plan(plan, size), meshes, builder, order)

    def repeat(timeline: Timeline, smaller: Timeline, size: StepSize, times: int) -> Timeline:
        return repeat_layers(timeline, smaller, reduced.middle_layers(size), times)

    smallest = replace(reduced.smallest, middle=reduced.whole.middle) if user_model is not None else reduced.smallest
    found = trace(reduced.whole) if whole else extrapolated(reduced.whole, smallest, reduced.micro_batch_multiple, trace, repeat)
    moment, peak = max(found.instants.items(), key=lambda item: item[1].memory_bytes)
    allocator = None if plan.cluster.device.kind == "cpu" else _reserved(plan, found, peak.memory_bytes)
    return SimulatedRank(
        rank=rank,
        stages=stages_of_rank(knobs.pp_schedule, layout.pp, layout.pp * knobs.pp_virtual_stages, meshes.stage_rank),
        peak_memory_bytes=peak.memory_bytes,
        between_steps_bytes=found.between_steps_bytes,
        memory={**dict.fromkeys(MEMORY_PARTS, 0), **peak.parts},
        modules=dict(peak.modules),
        moment=moment,
        traffic=tuple(
            Traffic(axis=axis, collective=name, calls=calls, message_bytes=found.message_bytes[axis, name])
            for (axis, name), calls in sorted(found.calls.items())
        ),
        flops=float(found.flops),
        wall_seconds=time.perf_counter() - begin,
        peak_reserved_bytes=None if allocator is None else allocator.peak_bytes,
        cache_releases=0 if allocator is None else allocator.releases,
        host_memory_bytes=found.host_bytes,
        notes=tuple(unsupported.notes(requested_plan, user_model)),
        upper_bound=unsupported.overestimates_memory(requested_plan),
    )


def races(plan: Plan, rank: int) -> tuple[str, ...]:
    """Possible data races between the streams of a GPU in a step of ``rank``, found without a GPU. The process stays that rank."""
    unsupported.check(plan, copies_synchronously=True)
    pinned, plan = plan.candidate.options.pin_memory, without_compiler(plan)
    plan = replace(plan, candidate=replace(plan.candidate, options=replace(plan.candidate.options, pin_memory=pinned)))
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    compat_simulate.init_fake_process_group(rank, layout.world_size, gloo=False)
    compat_simulate.disable_pinned_memory()
    compat_simulate.replace_reducer(Reducer, Logger)
    order = simulate_streams()
    found = Races(order=order)
    order.on_record_stream = found.record_stream
    meshes = make_meshes(layout, DEVICE.type, rank, experts=plan.model.moe is not None, offload=knobs.offload)
    with cuda_kernel_replacements.cuda_replacements(), compat_simulate.fake_tensor_mode():
        traced(make_trainer(plan, TrialSettings(), meshes, DEVICE, FakeTensorBuilder(lambda layers: layers)), found, order)
    return tuple(found.found)


def _reserved(plan: Plan, found: Traced, peak_memory_bytes: int) -> Reserved:
    """Reserved memory. If the timeline has fewer micro-batches than the step, the difference of both peaks is added.

    Compared with tracing the whole step: 0.4 % off with fewer layers only (models of 8B and 70B, benchmarks/titan.py); with
    fewer micro-batches a small pipeline came out 5 % too low.
    """
    untraced_bytes = peak_memory_bytes - found.timeline.peak_memory_bytes
    capacity, expandable = plan.estimate.capacity_bytes - untraced_bytes, plan.candidate.options.expandable_segments
    replayed = reserved(found.timeline, expandable=expandable, capacity_bytes=capacity)
    return replace(replayed, peak_bytes=untraced_bytes + replayed.peak_bytes)


def without_compiler(plan: Plan) -> Plan:
    """The plan without compilation, which does not work on tensors without values: layers run eagerly and save more. Also
    without pinned memory, which does not exist here.
    """
    candidate = plan.candidate
    knobs = replace(candidate.knobs, compile=False)
    options = replace(candidate.options, fullgraph=False, async_tp=False, pin_memory=False)
    return replace(plan, candidate=replace(candidate, knobs=knobs, options=options))


def _trace(plan: Plan, meshes: Meshes, builder: FakeTensorBuilder | UserModelBuilder, order: StreamOrder | None) -> Traced:
    cuda_kernels = cuda_kernel_replacements.cuda_replacements() if plan.cluster.device.kind == "cuda" else nullcontext()
    with compat_simulate.fake_tensor_mode(), cuda_kernels:
        trainer = make_trainer(plan, TrialSettings(), meshes, DEVICE, builder)
        if isinstance(builder, UserModelBuilder):
            trainer = replace(trainer, loss=builder.loss(plan))
        return traced(trainer, order=order)
