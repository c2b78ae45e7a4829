"""Profiled steps of a session: one under the profiler, one in which collectives are counted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from strategist_runtime import rank_process
from strategist_runtime.compat import profile as compat_profile
from strategist_runtime.compat.device import peak_bytes
from strategist_runtime.measure import memory, profile, trace
from strategist_runtime.measure.parts import collectives_by_axis
from strategist_runtime.measure.spans import DATA, span
from strategist_runtime.measure.traffic import CollectiveCall, count_collectives, traffic, with_torch_names
from strategist_runtime.mesh import axis_of
from strategist_runtime.model.attention_metadata import MetadataBuilder
from strategist_runtime.rank_record import Recorder
from strategist_runtime.training.learning_rate_schedule import set_learning_rate
from strategist_runtime.training.trainer import StepResult, Trainer


def load_and_step(trainer: Trainer, index: int) -> StepResult:
    """One step, including reading its data."""
    set_learning_rate(trainer.optimizer, trainer.settings, index)
    with span(DATA):
        rows = trainer.batch(index)
    return trainer.step(rows)


def profile_steps(trainer: Trainer, recorder: Recorder, index: int, count_index: int | None) -> StepResult:
    """Runs the profiled step and, in a trial, the counted one; returns the profiled step's result.

    Peak memory on CUDA is the allocator's count before these steps; on CPU the static memory plus what the profiled step added.
    """
    figures, device = recorder.figures, trainer.device
    figures.peak_memory_bytes, figures.peak_reserved_bytes = peak_bytes(device), compat_profile.peak_reserved_bytes(device)
    rank_process.remove_memory_limit()  # so that the memory limit does not apply to the profiler's memory
    static = memory.static_bytes(trainer.parts, trainer.optimizer, tables(trainer))
    results: list[StepResult] = []
    folder = Path(trainer.settings.trace) if trainer.settings.trace else None
    with memory.marked(memory.modules(trainer.parts)), trace.device_memory(device, folder, recorder.rank):
        found = profile.profiled(
            lambda: results.append(load_and_step(trainer, index)), device, _axis_of(trainer), _trace_writer(folder, recorder.rank)
        )
    if folder is not None:
        trace.write_memory_curve(folder, recorder.rank, static, found.memory_curve)
    calls = (
        [] if count_index is None or _too_large(trainer) else count_collectives(lambda: load_and_step(trainer, count_index), device)
    )
    _record_profile(recorder, found, static)
    _record_traffic(recorder, found, calls, _axis_of(trainer))
    return results[0]


def _too_large(trainer: Trainer) -> bool:
    """Whether the counted step may need more memory than other steps: uncompiled layers save more than compiled ones. It does
    not matter on CPU, where the memory limit has been lifted by now.
    """
    return trainer.plan.candidate.knobs.compile and trainer.device.type != "cpu"


def _axis_of(trainer: Trainer) -> Callable[[str], str]:
    layout = trainer.plan.candidate.layout
    return lambda group: axis_of(group, layout)


def _trace_writer(folder: Path | None, rank: int) -> Callable[[Any], None] | None:
    return None if folder is None else lambda profiler: trace.write_profile(folder, rank, profiler)


def _record_profile(recorder: Recorder, found: profile.Profile, static_bytes: int) -> None:
    figures = recorder.figures
    figures.profiled = found
    if figures.peak_memory_bytes is None:
        figures.peak_memory_bytes = static_bytes + found.allocated_bytes


def _record_traffic(recorder: Recorder, found: profile.Profile, calls: list[CollectiveCall], axis: Callable[[str], str]) -> None:
    collectives = collectives_by_axis(with_torch_names(found.activity.collectives, calls), axis) or {}
    recorder.figures.traffic = traffic(collectives, calls, found.activity.computation, axis)


def tables(trainer: Trainer) -> list[Tensor]:
    """Tensors that a model keeps besides parameters and buffers."""
    found = (getattr(module, "metadata_builder", None) for part in trainer.parts for module in part.modules())
    return [
        table for metadata_builder in found if isinstance(metadata_builder, MetadataBuilder) for table in metadata_builder.tensors()
    ]
