"""Shadow run: one real rank of any cluster, with its own tensors on one device and without peers.

Collectives do not return what peers would send, so losses and gradients are meaningless. Shapes, types, operators and lifetimes
of tensors are those of the rank, and so are its compute time and its peak memory.
"""

import torch
from torch import Tensor

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.units import show_bytes
from strategist_runtime.compat import shadow as compat_shadow, simulate as compat_simulate
from strategist_runtime.compat.device import library_versions, this_device
from strategist_runtime.compat.groups import initialize_device_and_groups
from strategist_runtime.measure.memory import limit_memory
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_record import Recorder
from strategist_runtime.training.session import begin
from strategist_runtime.training.trainer import StepResult, Trainer, make_trainer


class UncheckedTrainer(Trainer):
    """A trainer whose steps are never skipped, and which clips in every step if the settings clip at all."""

    def reduced(self, loss: Tensor) -> StepResult:
        """A loss of 0 and a norm above the limit, after the same work as in a real step."""
        super().reduced(loss)
        return StepResult(loss=0.0, grad_norm=2.0 * (self.settings.clip_norm or 1.0))


def run(plan: Plan, rank: int, settings: TrialSettings, recorder: Recorder) -> None:
    """Runs the trial's steps as ``rank`` of the plan and fills the recorder's figures. The process stays that rank: call it once.

    Raises:
        InputError: the device at hand has less memory than the plan's.
    """
    recorder.enter("init")
    layout, planned_device = plan.candidate.layout, plan.cluster.device
    device = this_device(planned_device.kind, 0)
    recorder.figures.versions = dict(library_versions())
    _check_memory(plan, device)
    compat_simulate.init_fake_process_group(rank, layout.world_size, gloo=planned_device.kind == "cpu", values=True)
    compat_shadow.loop_back_collectives()
    experts = plan.model.moe is not None
    meshes = make_meshes(layout, device.type, rank, experts=experts, offload=plan.candidate.knobs.offload)
    initialize_device_and_groups(device)
    limit_memory(planned_device.usable_memory_bytes, device)
    recorder.enter("build")
    trainer = make_trainer(plan, settings, meshes, device)
    begin(UncheckedTrainer(**vars(trainer)), recorder).run()
    recorder.enter("done")


def _check_memory(plan: Plan, device: torch.device) -> None:
    """Refuses a device with less memory than the plan's, which would run out of memory where the plan's does not."""
    planned = plan.cluster.device
    if device.type == "cpu":
        return
    device_bytes = torch.cuda.get_device_properties(device).total_memory
    if device_bytes < planned.usable_memory_bytes:
        law = f"has {show_bytes(device_bytes)}, {planned.name} lets a program use {show_bytes(planned.usable_memory_bytes)}"
        raise InputError(torch.cuda.get_device_name(device), law, "shadow on a device that has as much")
