"""One rank that trains and evaluates with several plans; started by test_trainings, which compares them with one process."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from strategist_runtime.mesh import Meshes, make_meshes
from strategist_runtime.rank_process import leave
from strategist_runtime.training.evaluation import Evaluation, make_evaluation
from strategist_runtime.training.profiling import load_and_step
from strategist_runtime.training.trainer import make_trainer

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

STEPS = 3


@contextmanager
def sends_wait_for_receivers() -> Iterator[None]:
    """Context in which a send ends when its receiver takes it, and later messages of the two ranks wait for it, as in a stream of
    NCCL; gloo keeps sends that nothing waits for. Streamed stages have a group, and so a stream, for each direction.
    """
    original = dist.isend

    def send(*arguments: Any, **options: Any) -> SimpleNamespace:
        work = original(*arguments, **options)
        assert work is not None
        work.wait()
        return SimpleNamespace(wait=lambda: True, is_completed=lambda: True)  # gloo fails where a send is awaited twice

    dist.isend = send  # type: ignore[assignment]
    try:
        yield
    finally:
        dist.isend = original


def figures(plan: Plan, settings: TrialSettings, meshes: Meshes) -> dict[str, Any]:
    """Losses and norms of a few steps, and the evaluation loss before, between and after them."""
    trainer = make_trainer(plan, settings, meshes, torch.device("cpu"))
    evaluation = make_evaluation(trainer)
    assert evaluation is not None
    waiting = nullcontext if plan.candidate.knobs.offload == "streamed" else sends_wait_for_receivers
    results, held_out = [], [_held_out_loss(evaluation, waiting)]
    for index in range(STEPS):
        results.append(load_and_step(trainer, index))
        held_out.append(_held_out_loss(evaluation, waiting))
    return {
        "losses": [result.loss for result in results],
        "grad_norms": [result.grad_norm for result in results],
        "evaluation_losses": held_out,
    }


def _held_out_loss(evaluation: Evaluation, waiting: Callable[[], AbstractContextManager[None]]) -> float:
    with waiting():
        return evaluation.loss(lambda: None)


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
