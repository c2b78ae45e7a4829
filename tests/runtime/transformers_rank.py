"""One rank that trains models of transformers; started by test_transformers, on one rank and on two."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime.adapters.transformers_export import export_external_model
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_process import leave
from strategist_runtime.training.trainer import make_trainer

from runtime.parity_rank import of_all_stages, train
from runtime.plans import TINY, WORKLOAD, plan
from strategist.contract.knobs import Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.plan import Plan

SHAPE = replace(TINY, hidden_size=128, heads=4, kv_heads=2, head_size=32, ffn_size=256)
"""Common sizes of all models here; two ranks can shard its quantization blocks of 64."""

SHAPES = {
    "llama": SHAPE,
    "qwen3": replace(SHAPE, qk_norm=True),
    "gemma2": replace(SHAPE, tied_embeddings=True),
    "phi3": SHAPE,
    "gpt2": replace(SHAPE, kv_heads=4, tied_embeddings=True, learned_positions=64),
}
SHARDED, REPLICATED, SPLIT = Layout(dp_shard=2), Layout(dp_replicate=2), Layout(tp=2)


def shape_of(kind: str) -> ModelShape:
    """The shape of a model type's tiny model."""
    return replace(SHAPES[kind], name=kind)


def _plan(kind: str, layout: Layout, *, train: str = "full", **knobs: KnobValue) -> Plan:
    workload = replace(WORKLOAD, optimizer="sgd", train=train, lora_rank=4)
    return plan(layout=layout, knobs=Knobs(**{"micro_batch": 2, **knobs}), model=shape_of(kind), workload=workload)


def cases() -> Iterator[tuple[str, Plan]]:
    """Models that the native decoder does not support, with transformers' own tensor-parallel plans."""
    yield "gemma2 fsdp", _plan("gemma2", SHARDED, recompute="full")
    yield "gemma2 tp", _plan("gemma2", SPLIT, loss_parallel=True)
    yield "phi3 tp", _plan("phi3", SPLIT, recompute="selective")
    yield "qwen3 tp", _plan("qwen3", SPLIT, micro_batch=1, no_sync=True)
    yield "gpt2 ddp", _plan("gpt2", REPLICATED, recompute="every_second_layer")
    yield "llama fsdp compile", _plan("llama", SHARDED, compile=True)
    yield "qwen3 fsdp weights", _plan("qwen3", SHARDED)
    yield "qwen3 lora tp weights", _plan("qwen3", SPLIT, train="lora")
    yield "qwen3 qlora fsdp weights", _plan("qwen3", SHARDED, train="qlora")
    yield "llama qlora tp", _plan("llama", SPLIT, train="qlora")


EXPORTED = {"gemma2": _plan("gemma2", SHARDED), "qwen3": _plan("qwen3", SPLIT, train="lora")}
"""Exported after one step: a tied head, and weights merged with adapters."""


def export(folder: Path, names: list[str]) -> None:
    """Exports those of ``names`` with this world size."""
    for kind, parallel in EXPORTED.items():
        if kind not in names:
            continue
        chosen = parallel if dist.get_world_size() > 1 else plan(model=parallel.model, workload=parallel.workload)
        settings, device = TrialSettings(hugging_face=str(folder / kind)), torch.device("cpu")
        trainer = make_trainer(chosen, settings, make_meshes(chosen.candidate.layout, "cpu", dist.get_rank()), device)
        trainer.step(trainer.batch(0))
        export_external_model(trainer.parts[0], chosen, str(folder / f"{kind} of {dist.get_world_size()}"), device)


def main(folder: Path, names: list[str]) -> None:
    """Trains the cases of ``names``, as one process if the world has a single rank, and writes the results."""
    dist.init_process_group("gloo")
    found = {}
    for name, parallel in cases():
        if name not in names:
            continue
        kind = name.split()[0]
        alone = plan(model=parallel.model, workload=parallel.workload, knobs=Knobs(micro_batch=8))
        weights = str(folder / kind) if "weights" in name else ""
        settings = TrialSettings(clip_norm=None, hugging_face=str(folder / kind), weights=weights)
        results, gradients = train(alone if dist.get_world_size() == 1 else parallel, settings)
        found[name] = {
            "losses": [result.loss for result in results],
            "grad_norms": [result.grad_norm for result in results],
            "gradients": {key: gradient.tolist() for key, gradient in of_all_stages(gradients).items()},
        }
        torch._dynamo.reset()
    export(folder, names)
    if dist.get_rank() == 0:
        (folder / f"{os.environ['WORLD_SIZE']}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
