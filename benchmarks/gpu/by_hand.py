"""A plan's steps and those of a loop written by hand, in turn, on one device: by_hand.py HOW --plan FILE --device D --out FILE

HOW: eager, compiled or recomputed, of the same model; torchtitan, of its Llama 3. All compute with autocast and update with a fused
AdamW, which is what the plan's trainer does on one device.
"""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from gpu.titan_llama import llama
from strategist_runtime.compat.device import library_versions, synchronize, this_device
from strategist_runtime.mesh import make_meshes
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.rendezvous import join_process_group
from strategist_runtime.training.trainer import make_trainer
from strategist_runtime.weights.seeded import materialise
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strategist.contract import codec
from strategist.contract.measurement import LEARNING_RATE, TrialSettings
from strategist.contract.plan import Plan

HOWS = ("eager", "compiled", "recomputed", "torchtitan")
WARM_UP, PAIRS = 3, 12
CLIP = 1.0


class Recomputed(nn.Module):
    """A layer that keeps its input only."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *arguments: Any, **options: Any) -> Tensor:
        return checkpoint(self.layer, *arguments, use_reentrant=False, preserve_rng_state=False, **options)


def model_of(how: str, plan: Plan, device: torch.device) -> nn.Module:
    """The model as the loop trains it."""
    shape, seq_len = plan.model, plan.workload.seq_len
    if how == "torchtitan":
        with device:
            return llama(shape, seq_len)
    with torch.device("meta"):
        model = Decoder(shape)
    materialise(model, shape, seq_len, 0, device)
    for name, layer in model.layers.items():
        if how == "recomputed":
            model.layers[name] = Recomputed(layer)
        if how == "compiled":
            layer.compile()
    return model


def loop(how: str, plan: Plan, device: torch.device) -> Callable[[Tensor, Tensor], float]:
    """One step on tokens and targets, which returns the loss."""
    model, bf16 = model_of(how, plan, device), plan.workload.precision == "bf16"
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step(tokens: Tensor, targets: Tensor) -> float:
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def main() -> None:
    """Seconds of each pair (plan, by hand), and the first losses of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=HOWS)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    plan, device = codec.load(Plan, options.plan), this_device(options.device, 0)
    join_process_group(options.out.parent, device.type, 60.0)
    trainer = make_trainer(plan, TrialSettings(), make_meshes(plan.candidate.layout, device.type, 0, experts=False), device)
    by_hand = loop(options.how, plan, device)
    found: dict[str, object] = {"how": options.how, "versions": dict(library_versions())}
    seconds, losses = [], []
    for index in range(WARM_UP + PAIRS):
        rows = trainer.batch(index)
        ways = {"plan": lambda rows=rows: trainer.step(rows).loss, "by hand": lambda rows=rows: by_hand(rows.tokens, rows.targets)}
        order = list(ways)
        random.Random(index).shuffle(order)
        taken = {way: timed(ways[way], device) for way in order}
        losses.append([taken["plan"][1], taken["by hand"][1]])
        if index >= WARM_UP:
            seconds.append([taken["plan"][0], taken["by hand"][0]])
        found |= {"seconds": seconds, "losses": losses[:3]}
        options.out.write_text(json.dumps(found), encoding="utf-8")


def timed(step: Callable[[], float], device: torch.device) -> tuple[float, float]:
    """Seconds of a step, and its loss."""
    synchronize(device)
    begin = perf_counter()
    loss = step()
    synchronize(device)
    return perf_counter() - begin, loss


if __name__ == "__main__":
    main()
