"""One rank of benchmarks/techniques.py: steps of a plan's trainer and of the hand-written loop in turn, in one process."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
from loops import LOOPS
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_process import leave
from strategist_runtime.training.trainer import make_trainer

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

WARM_UP, PAIRS = 3, 30


def main(name: str, plan_file: Path, target: Path) -> None:
    """Writes seconds of each pair (ours, by hand), and the first losses of both."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    plan = codec.load(Plan, plan_file)
    meshes = make_meshes(plan.candidate.layout, "cpu", dist.get_rank(), experts=plan.model.moe is not None)
    trainer = make_trainer(plan, TrialSettings(), meshes, torch.device("cpu"))
    by_hand = LOOPS[name](plan.model, plan.workload.seq_len, plan.candidate.knobs.micro_batch)
    seconds, losses = [], []
    for index in range(WARM_UP + PAIRS):
        rows = trainer.batch(index)
        ways = {"ours": lambda rows=rows: trainer.step(rows).loss, "by hand": lambda rows=rows: by_hand(rows.tokens, rows.targets)}
        order = list(ways)
        random.Random(index).shuffle(order)
        taken = {way: timed(ways[way]) for way in order}
        losses.append([taken["ours"][1], taken["by hand"][1]])
        if index >= WARM_UP:
            seconds.append([taken["ours"][0], taken["by hand"][0]])
    if dist.get_rank() == 0:
        target.write_text(json.dumps({"seconds": seconds, "losses": losses[:3]}), encoding="utf-8")
    dist.barrier()
    leave()


def timed(step: Callable[[], float]) -> tuple[float, float]:
    """Seconds until every rank is through, and the loss."""
    dist.barrier()
    begin = perf_counter()
    loss = step()
    dist.barrier()
    return perf_counter() - begin, loss


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
