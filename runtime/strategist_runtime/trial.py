"""Runs one rank of a trial: process group, meshes, model, warm-up steps, measured steps, a profiled step."""

import os
from typing import Any

import torch.distributed as dist

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime import rank_process
from strategist_runtime.compat.device import library_versions, this_device
from strategist_runtime.compat.groups import initialize_device_and_groups, set_timeouts, stage_through_host
from strategist_runtime.measure.memory import limit_memory
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_record import Recorder
from strategist_runtime.rendezvous import join_process_group
from strategist_runtime.training.session import begin
from strategist_runtime.training.trainer import Trainer, make_trainer
from strategist_runtime.weights.export import checked_config, export


def run(plan: Plan, settings: TrialSettings, recorder: Recorder) -> None:
    """Runs the trial, or a session of a training, and fills the recorder's figures.

    Raises:
        NotFinite: training diverged.
        Stopped: the training was requested to end, and is saved.
        InputError, FileError: a checkpoint, weights or data are missing.
    """
    recorder.enter("init")
    device = this_device(plan.cluster.device.kind, plan.cluster.gpu_of(int(os.environ["LOCAL_RANK"])))
    if plan.cluster.devices_share_one_gpu:
        stage_through_host()
    recorder.figures.versions = dict(library_versions())
    join_process_group(recorder.folder, device.type, settings.init_timeout_seconds)
    layout, experts = plan.candidate.layout, plan.model.moe is not None
    meshes = make_meshes(layout, device.type, dist.get_rank(), experts=experts, offload=plan.candidate.knobs.offload)
    set_timeouts(settings.init_timeout_seconds)
    initialize_device_and_groups(device)
    recorder.idle_bytes = rank_process.data_bytes()
    limit_memory(plan.cluster.device.memory_bytes, device)
    recorder.enter("build")
    if settings.export:
        checked_config(plan, settings.weights or settings.hugging_face)  # fails now rather than after the training
    trainer = make_trainer(plan, settings, meshes, device)
    begin(trainer, recorder).run()
    if settings.export:
        _export(trainer, recorder)
    dist.barrier()
    dist.destroy_process_group()
    recorder.enter("done")


def _export(trainer: Trainer, recorder: Recorder) -> None:
    """Exports the model, without the memory limit (whole tensors are not part of the plan) and with the timeout of slow disks."""
    settings = trainer.settings
    recorder.enter("save")
    rank_process.remove_memory_limit()
    set_timeouts(settings.save_timeout_seconds)
    if settings.hugging_face:
        from strategist_runtime.adapters.transformers_export import export_external_model  # optional dependency

        (model,) = trainer.parts
        inner: Any = getattr(model, "module", model)
        export_external_model(inner, trainer.plan, settings.export, trainer.device)
    else:
        export(trainer.parts, trainer.plan, settings.export, trainer.device, settings.weights, settings.tokenizer)
