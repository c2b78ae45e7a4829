"""One rank that trains and evaluates with several plans; started by test_trainings, which compares them with one process."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from strategist_runtime.mesh import Meshes, make_meshes
from strategist_runtime.process import leave
from strategist_runtime.training.evaluation import make_evaluation
from strategist_runtime.training.profiling import load_and_step
from strategist_runtime.training.trainer import make_trainer

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

STEPS = 4


def figures(plan: Plan, settings: TrialSettings, meshes: Meshes) -> dict[str, Any]:
    """Losses and norms of a few steps, and the evaluation loss before, between and after them."""
    trainer = make_trainer(plan, settings, meshes, torch.device("cpu"))
    evaluation = make_evaluation(trainer)
    assert evaluation is not None
    results, held_out = [], [evaluation.loss(lambda: None)]
    for index in range(STEPS):
        results.append(load_and_step(trainer, index))
        held_out.append(evaluation.loss(lambda: None))
    return {
        "losses": [result.loss for result in results],
        "grad_norms": [result.grad_norm for result in results],
        "evaluation_losses": held_out,
    }


def main(folder: Path, names: list[str]) -> None:
    """Runs the plans ``<name>.json`` of the folder; rank 0 writes the figures of each."""
    dist.init_process_group("gloo")
    settings, found = codec.load(TrialSettings, folder / "settings.json"), {}
    for name in names:
        if dist.get_rank() == 0:
            print(name, flush=True)
        plan = codec.load(Plan, folder / f"{name}.json")
        experts, offload = plan.model.moe is not None, plan.candidate.knobs.offload
        meshes = make_meshes(plan.candidate.layout, "cpu", dist.get_rank(), experts=experts, offload=offload)
        found[name] = figures(plan, settings, meshes)
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
