"""One rank of the exports: trains each plan for some steps and writes its model; started by test_export."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_process import leave
from strategist_runtime.training.trainer import make_trainer
from strategist_runtime.weights.export import export

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

STEPS = 3


def report(place: Path) -> float:
    """The loss of the written weights on the batch after the last step."""
    plan, settings = codec.load(Plan, place / "plan.json"), codec.load(TrialSettings, place / "settings.json")
    device, layout = torch.device("cpu"), plan.candidate.layout
    meshes = make_meshes(layout, "cpu", dist.get_rank(), experts=plan.model.moe is not None, offload=plan.candidate.knobs.offload)
    trainer = make_trainer(plan, settings, meshes, device)
    for index in range(STEPS):
        trainer.step(trainer.batch(index))
    export(trainer.parts, plan, settings.export, device, settings.weights)
    return trainer.reduced(trainer.accumulate(trainer.batch(STEPS))).loss


def main(places: list[str]) -> None:
    """Runs all plans; rank 0 writes loss.json into each folder."""
    dist.init_process_group("gloo")
    for place in map(Path, places):
        loss = report(place)
        if dist.get_rank() == 0:
            print(place, loss, flush=True)
            (place / "loss.json").write_text(json.dumps(loss), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])
