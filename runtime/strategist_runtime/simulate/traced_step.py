"""Traces one step of a trainer on tensors without values."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Moment
from strategist_runtime.compat import simulate as compat_simulate
from strategist_runtime.data.batch import Batch
from strategist_runtime.measure import memory
from strategist_runtime.measure.traffic import CollectiveCounter, traffic
from strategist_runtime.mesh import axis_of
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.optimizers.in_backward import InBackward
from strategist_runtime.parallel.comm_hooks import UNCOMPRESSED_STEPS
from strategist_runtime.parallel.streaming import Streaming
from strategist_runtime.simulate.host_memory import HOST, creating_part, host_optimizers, update_on_host, update_synchronously
from strategist_runtime.simulate.live_tensors import OPTIMIZER, Live, layer_part
from strategist_runtime.simulate.races import Races
from strategist_runtime.simulate.reducer import Reducer
from strategist_runtime.simulate.timeline import MemorySnapshot, Timeline
from strategist_runtime.simulate.virtual_streams import StreamOrder
from strategist_runtime.training.checkpoint_state import finished_state_of
from strategist_runtime.training.profiling import tables
from strategist_runtime.training.trainer import Trainer

Kind = tuple[str, str]
"""Kind of traffic: mesh axis and collective."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Figures of a traced step: the memory peak of each moment, and calls and bytes of collectives by kind. ``timeline`` may be
    that of a step of fewer layers or micro-batches.
    """

    instants: Mapping[Moment, MemorySnapshot]
    calls: Mapping[Kind, int]
    message_bytes: Mapping[Kind, int]
    flops: int
    between_steps_bytes: int
    host_bytes: int = 0
    timeline: Timeline = field(default_factory=Timeline, compare=False)


def traced(trainer: Trainer, races: Races | None = None, order: StreamOrder | None = None) -> Traced:
    """Traces a step after the optimizer's states have been made. ``races``, if given, checks its operations, and those of a second
    step, for data races on the streams of ``order``: the second step reads what the first one has updated.
    """
    rows = trainer.batch(0)
    update_synchronously(trainer)
    live = Live(races, order)
    with compat_simulate.AnyNumber():
        _make_states(trainer)
        gc.collect()
        _count_static_tensors(live, trainer)
    between_steps_bytes = live.live_bytes
    for tensor in rows.tensors().values():
        live.hold(tensor, "activations")
    offload = on_host(trainer.plan)
    gc.disable()  # reference counts free every tensor at its last use
    try:
        with CollectiveCounter() as counter, live.tracking(trainer.parts):
            loss = _accumulated(trainer, rows, live)
            _classify_gradients(live, trainer)
            live.updating = True
            with creating_part(HOST) if offload == "all" and races is None else nullcontext():
                trainer.update(loss)
            if races is not None:
                if trainer.plan.candidate.options.checkpoint != "sync":
                    stage(trainer, races.order)
                trainer.update(_accumulated(trainer, rows, live))
    finally:
        gc.enable()
    layout = trainer.plan.candidate.layout
    exchanged = traffic({}, counter.calls, (), lambda group: axis_of(group, layout))
    return Traced(
        instants=live.timeline.instants(),
        calls={(row.axis, row.collective): int(row.calls) for row in exchanged},
        message_bytes={(row.axis, row.collective): int(row.message_bytes) for row in exchanged},
        flops=live.flops,
        between_steps_bytes=between_steps_bytes,
        host_bytes=live.host_peak_bytes,
        timeline=replace(live.timeline, events=list(live.timeline.events)),  # without the frees at the end of the trainer
    )


def _accumulated(trainer: Trainer, rows: Batch, live: Live) -> Tensor:
    """The loss of a step's forward and backward passes. With ``offload=all``, FSDP2 copies between device and host."""
    with compat_simulate.watched_copies(live.copied) if on_host(trainer.plan) == "all" else nullcontext():
        return trainer.accumulate(rows)


def stage(trainer: Trainer, order: StreamOrder) -> None:
    """Copies the state as torch's stager does before it is written: on the current stream, then waits for the device; then the
    host reads the copies.
    """
    copies = []
    for tensor in finished_state_of(trainer).values():
        for part in memory.inner_tensors(tensor):
            with creating_part(HOST):
                copies.append(torch.empty_like(part))
            copies[-1].copy_(part, non_blocking=True)
    order.wait_for_all()
    for copy in copies:
        copy.clone()


def _make_states(trainer: Trainer) -> None:
    """Makes the states that the first steps make.

    An optimizer in the backward pass needs a whole step. So do DDP's reducers, which learn the order of gradients, and
    communication hooks, which keep state for compression. Otherwise an update suffices.
    """
    if isinstance(trainer.optimizer, InBackward) or reducers(trainer):
        knobs = trainer.plan.candidate.knobs
        rows = next(trainer.batch(0).micro_batches(knobs.micro_batch))
        for _ in range(1 + (UNCOMPRESSED_STEPS if knobs.comm_hook == "powersgd" else 0)):
            trainer.step(rows)
        for reducer in reducers(trainer):
            reducer.rebuild_buckets()  # otherwise the next forward pass would
        return
    for parameter in trainer.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)


def on_host(plan: Plan) -> str:
    """States that the plan keeps in host memory (``offload``); ``none`` for CPU devices, which have no separate memory."""
    return "none" if plan.cluster.device.kind == "cpu" else plan.candidate.knobs.offload


def _count_static_tensors(live: Live, trainer: Trainer) -> None:
    """Counts the tensors that live between steps."""
    offload = on_host(trainer.plan)
    for name, parameter in _parameters_by_layer_part(trainer):
        live.hold(parameter, HOST if offload in ("all", "streamed") else "parameters", name)
    for tensor in memory.parameters(trainer.parts):
        live.hold(tensor, "parameters")
    for tensor in memory.optimizer_states(trainer.optimizer):
        live.hold(tensor, "optimizer" if offload == "none" else HOST, OPTIMIZER)
    for stage in trainer.pipeline.stages if isinstance(trainer.pipeline, Streaming) else ():
        for tensor in stage.host_weights.values():
            live.hold(tensor, HOST)
    for host in host_optimizers(trainer.optimizer) if offload != "none" else ():
        update_on_host(host)
        for tensor in (*host.twins.values(), *host.buffers.values()):
            live.hold(tensor, HOST)
    for reducer in reducers(trainer):
        for tensor in reducer.tensors():
            live.hold(tensor, "gradients" if reducer.as_views else "communication")
        for tensor in reducer.hook_tensors():
            live.hold(tensor, "communication")
    for tensor in tables(trainer):
        live.hold(tensor, "activations")


def reducers(trainer: Trainer) -> list[Reducer]:
    """DDP's reducers."""
    return [cast(Reducer, part.reducer) for part in trainer.parts if isinstance(part, DistributedDataParallel)]


def _classify_gradients(live: Live, trainer: Trainer) -> None:
    """Assigns gradients and FSDP2's tensors to their parts of memory, after the backward pass."""
    for part in trainer.parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                for kind, tensor in compat_simulate.fsdp_tensors(module):
                    live.set_origin(tensor, kind)
    for name, parameter in _parameters_by_layer_part(trainer):
        if parameter.grad is not None:
            live.set_origin(parameter.grad, "gradients", name)


def _parameters_by_layer_part(trainer: Trainer) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by their place within a layer (``layer_part``)."""
    for part in trainer.parts:
        inner = part.module if isinstance(part, DistributedDataParallel) else part
        called = getattr(inner, "called", str)
        for name, parameter in plain_names([part]):
            yield layer_part(called(name)), parameter
