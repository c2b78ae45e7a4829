"""Tokens/s of streamed stages against the same model resident on one CUDA device, by micro-batches a round:
python benchmarks/streaming.py

A copy of B bytes hides behind a round of m micro-batches when m x forward seconds of the layer >= B / link.
"""

import os
import sys
from dataclasses import replace
from statistics import median
from time import perf_counter
from unittest.mock import patch

import torch
from strategist_runtime.mesh import Meshes
from strategist_runtime.parallel import streaming
from strategist_runtime.training.trainer import Trainer, make_trainer

from strategist import api
from strategist.contract.measurement import TrialSettings
from strategist.contract.options import KnobValue
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload

MODEL, SEQ_LEN, STEPS, WARM_UP = "llama3.2-3b", 2048, 5, 2
ROUNDS = (1, 2, 4, 8, 16)
FIXED: dict[str, KnobValue] = {"recompute": "full", "micro_batch": 1, "compile": False}


def plan_of(micro_batches: int, offload: str) -> Plan:
    """On one device of this machine."""
    workload = Workload(seq_len=SEQ_LEN, global_batch=micro_batches)
    request = Request(model=MODEL, gpus="local", workload=workload, fix={**FIXED, "offload": offload}, backend="native")
    return api.plan(request).plans[0]


def seconds(trainer: Trainer) -> float:
    """Median of a few steps."""
    taken = []
    for index in range(WARM_UP + STEPS):
        torch.cuda.synchronize()
        begin = perf_counter()
        trainer.step(trainer.batch(index))
        torch.cuda.synchronize()
        taken.append(perf_counter() - begin)
    return median(taken[WARM_UP:])


def measured(plan: Plan) -> float:
    """Seconds of a step; all micro-batches are one round."""
    trainer = make_trainer(plan, replace(TrialSettings(), clip_norm=None), Meshes(), torch.device("cuda", 0))
    with patch.object(streaming, "stream_rounds", return_value=1):
        return seconds(trainer)


def main() -> None:
    """One line a number of micro-batches."""
    if not torch.cuda.is_available():
        print("streamed stages against resident ones: unmeasured, no GPU")
        return
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {torch.cuda.get_device_name()}, {MODEL}, {SEQ_LEN} tokens")
    for micro_batches in ROUNDS:
        resident, streamed = (measured(plan_of(micro_batches, offload)) for offload in ("none", "streamed"))
        tokens = micro_batches * SEQ_LEN
        print(f"{micro_batches:3} micro-batches a round: {tokens / streamed:9,.0f} tokens/s, {resident / streamed:.2f} of resident")


if __name__ == "__main__":
    main()
