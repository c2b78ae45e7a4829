"""One rank of several training sessions, each with another plan for as many ranks; started by test_checkpoint."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_process import leave
from strategist_runtime.rank_record import Recorder
from strategist_runtime.training.session import begin
from strategist_runtime.training.trainer import make_trainer

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan


def main(folder: Path, sessions: list[str]) -> None:
    """Runs ``<training>=<step>=<plan file>`` one after another, each up to its step; writes the losses of each training."""
    dist.init_process_group("gloo")
    settings, losses = codec.load(TrialSettings, folder / "settings.json"), dict[str, list[float]]()
    for text in sessions:
        training, last, path = text.split("=")
        plan = codec.load(Plan, path)
        own_settings = replace(settings, total_steps=int(last), save=str(folder / training))
        experts, offload = plan.model.moe is not None, plan.candidate.knobs.offload
        meshes = make_meshes(plan.candidate.layout, "cpu", dist.get_rank(), experts=experts, offload=offload)
        session = begin(
            make_trainer(plan, own_settings, meshes, torch.device("cpu")), Recorder(folder / "session", dist.get_rank())
        )
        session.steps(range(session.first, int(last)), counted=True)
        session.end()
        losses.setdefault(training, []).extend(session.recorder.figures.losses)
    if dist.get_rank() == 0:
        (folder / "losses.json").write_text(json.dumps(losses), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
