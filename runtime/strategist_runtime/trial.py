"""The road of one rank: process group, meshes, model, warm-up, counted steps, a profiled step."""

import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime import compat, measure, process
from strategist_runtime.data import Batch
from strategist_runtime.mesh import axis_of, make_meshes
from strategist_runtime.model.scene import Scenes
from strategist_runtime.record import NotFinite, Recorder
from strategist_runtime.trainer import StepResult, Trainer, make_trainer


def run(plan: Plan, settings: TrialSettings, recorder: Recorder) -> None:
    """Runs the trial and fills the recorder's figures.

    Raises:
        NotFinite: training diverged.
    """
    recorder.enter("init")
    device = compat.device(plan.cluster.device.kind, int(os.environ["LOCAL_RANK"]))
    recorder.figures.versions = dict(compat.versions())
    dist.init_process_group(compat.COLLECTIVE_BACKENDS[device.type], timeout=timedelta(seconds=settings.init_timeout_seconds))
    meshes = make_meshes(plan.candidate.layout, device.type, dist.get_rank())
    compat.set_timeouts(settings.init_timeout_seconds)
    compat.wake(device)
    limit_memory(plan, device)
    recorder.enter("build")
    trainer = make_trainer(plan, settings, meshes, device)
    recorder.enter("warm-up")
    _steps(trainer, recorder, range(settings.warmup_steps), counted=False)
    recorder.enter("measure")
    _steps(trainer, recorder, range(settings.warmup_steps, settings.warmup_steps + settings.steps), counted=True)
    recorder.enter("profile")
    _profile(trainer, recorder, settings.warmup_steps + settings.steps)
    dist.barrier()
    dist.destroy_process_group()
    recorder.enter("done")


def limit_memory(plan: Plan, device: torch.device) -> None:
    """Holds this rank to the memory of the planned device, where this machine's is larger."""
    capacity = plan.cluster.device.memory_bytes
    if device.type == "cpu":
        process.hold_memory(capacity)
    elif (total := torch.cuda.get_device_properties(device).total_memory) > capacity:
        torch.cuda.set_per_process_memory_fraction(capacity / total, device)


def _steps(trainer: Trainer, recorder: Recorder, indices: range, *, counted: bool) -> None:
    for index in indices:
        recorder.enter(recorder.phase)
        rows = trainer.batch(index)
        result, seconds = _timed(lambda rows=rows: trainer.step(rows), trainer.device)
        finite = result.finite
        recorder.step(index, loss=result.loss if finite else None, grad_norm=result.grad_norm if finite else None, seconds=seconds)
        if not finite:
            raise NotFinite(f"step {index}: loss {result.loss}, gradient norm {result.grad_norm}")
        recorder.figures.losses.append(result.loss)
        recorder.figures.grad_norms.append(result.grad_norm)
        if counted:
            recorder.figures.step_seconds.append(seconds)
        if index == 0:  # the first step connects the ranks and loads kernels; from now on a step is a step
            compat.set_timeouts(trainer.settings.step_timeout_seconds)
            compat.forget_peak(trainer.device)


def _timed(step: Callable[[], StepResult], device: torch.device) -> tuple[StepResult, float]:
    compat.synchronize(device)
    begin = time.perf_counter()
    result = step()
    compat.synchronize(device)
    return result, time.perf_counter() - begin


def _profile(trainer: Trainer, recorder: Recorder, index: int) -> None:
    """The profiled step; peak memory is the allocator's own count on CUDA, what lived before plus what the step added on CPU."""
    figures = recorder.figures
    figures.peak_memory_bytes = compat.peak_bytes(trainer.device)
    process.release_memory()  # the profiler's own memory is not the plan's
    rows = trainer.batch(index)
    static = measure.static_bytes(trainer.parts, trainer.optimizer, _others(trainer, rows))
    layout = trainer.plan.candidate.layout
    found = measure.profiled(lambda: trainer.step(rows), trainer.device, lambda group: axis_of(group, layout))
    figures.profiled_step_seconds = found.step_seconds
    figures.communication_seconds = found.communication_seconds
    figures.exposed_communication_seconds = found.exposed_communication_seconds
    figures.exposed_seconds_by_axis = found.exposed_seconds_by_axis
    figures.pipeline_waits, figures.shortest_transfer_seconds = found.pipeline_waits, found.shortest_transfer_seconds
    figures.compute_seconds = found.compute_seconds
    if figures.peak_memory_bytes is None:
        figures.peak_memory_bytes = static + found.allocated_bytes


def _others(trainer: Trainer, rows: Batch) -> list[Tensor]:
    modules = (module for part in trainer.parts for module in part.modules())
    scenes = [module.scenes for module in modules if isinstance(getattr(module, "scenes", None), Scenes)]
    return [*rows.tensors().values(), *(table for each in scenes for table in each.tensors())]
