"""One rank of the parity runs: trains the cases of one world size and writes the results; started by test_parity."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed as dist
from strategist_runtime.compat.groups import COLLECTIVE_BACKENDS
from strategist_runtime.mesh import make_meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.rank_process import leave
from strategist_runtime.training.trainer import StepResult, make_trainer
from torch.distributed.tensor import DTensor

from runtime.cases import STEPS
from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

SETTINGS = TrialSettings(learning_rate=1e-3, clip_norm=None)
DOCUMENT_TOKENS = 5
CLIPPED = replace(SETTINGS, clip_norm=0.1)
CLIPPED_SGD = replace(CLIPPED, learning_rate=0.1)
"""A clip norm far below the gradient norms, so that each step is clipped; SGD's learning rate is large enough to show it."""

shared_meshes = cache(make_meshes)
"""Cases of one layout share its process groups: each group has three threads, one of which polls a hundred times a second."""


def train(plan: Plan, settings: TrialSettings) -> tuple[list[StepResult], dict[str, torch.Tensor]]:
    """Losses and norms of a few steps, and the full gradients of the first step; of the second with LoRA, whose A matrices have
    none before.
    """
    device = torch.device("cpu")
    experts, offload = plan.model.moe is not None, plan.candidate.knobs.offload
    rank = dist.get_rank() if dist.is_initialized() else 0
    meshes = shared_meshes(plan.candidate.layout, "cpu", rank, experts=experts, offload=offload)
    trainer = make_trainer(plan, settings, meshes, device)
    results, gradients = [], {}
    for index in range(STEPS):
        loss = trainer.accumulate(trainer.batch(index))
        if index == (plan.workload.train != "full"):
            gradients = full_gradients(trainer.parts, tied=plan.model.tied_embeddings, scale=trainer.loss_scale)
        results.append(trainer.update(loss))
    return results, gradients


def full_gradients(parts: Iterable[torch.nn.Module], *, tied: bool, scale: float = 1.0) -> dict[str, torch.Tensor]:
    """Gradients by plain name, gathered from all ranks of a stage."""
    found = {}
    for name, parameter in plain_names(parts):
        if tied and name == "head.weight":  # unless it is a copy of the embedding, it has no own name
            continue
        if parameter.grad is None:  # frozen, or already updated
            continue
        gradient = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
        found[name] = gradient / scale
    return found


def of_all_stages(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The gradients of every rank's stages; ranks of one stage have the same."""
    if not dist.is_initialized():
        return gradients
    found: list[dict[str, torch.Tensor]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(found, gradients)
    return {name: gradient for each in found for name, gradient in each.items()}


def report(name: str, plan: Plan) -> dict[str, object]:
    """The results of one case, as plain data."""
    packed = DOCUMENT_TOKENS if plan.model.name.startswith("packed") else None
    clipped = CLIPPED_SGD if plan.workload.optimizer == "sgd" else CLIPPED
    settings = replace(clipped if "clipped" in name else SETTINGS, mean_document_tokens=packed)
    results, gradients = train(plan, settings)
    return {
        "losses": [result.loss for result in results],
        "grad_norms": [result.grad_norm for result in results],
        "gradients": {name: gradient.tolist() for name, gradient in of_all_stages(gradients).items()},
    }


def main(plans: Path, target: Path) -> None:
    """Runs the plans of a file, by name, and writes their results on rank 0."""
    dist.init_process_group(COLLECTIVE_BACKENDS["cpu"])
    found = {}
    for name, plan in json.loads(plans.read_text(encoding="utf-8")).items():
        if dist.get_rank() == 0:
            print(name, flush=True)
        found[name] = report(name, codec.decode(Plan, plan, name))
        torch._dynamo.reset()
    if dist.get_rank() == 0:
        target.write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
