"""From a plan to a model ready to train, techniques in one fixed order."""

import torch
from torch import nn

from strategist.contract.plan import Plan
from strategist_runtime import data_parallel
from strategist_runtime.compiled import compile_layers
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.model.weights import materialise
from strategist_runtime.recompute import apply_recompute
from strategist_runtime.tensor import apply_tensor_parallel


def parallelize(plan: Plan, meshes: Meshes, device: torch.device, seed: int) -> nn.Module:
    """Meta build, tensor parallelism, recompute, compile, FSDP2, weights; DDP last, as it needs them.

    Recompute wraps a layer before FSDP2 does, so that the parameters are gathered once for both of its passes in backward. A layer
    is compiled with its recomputation, which the compiler must see, and without FSDP2's hooks.
    """
    with torch.device("meta"):
        model = Decoder(plan.model)
    if meshes.tensor is not None:
        apply_tensor_parallel(model, meshes.tensor, plan.model, plan.candidate.knobs)
    apply_recompute(model, plan.candidate.knobs.recompute)
    if plan.candidate.knobs.compile:
        compile_layers(model, plan.candidate, device)
    if meshes.data is not None:
        data_parallel.shard(model, plan, meshes.data)
    materialise(model, plan.model, plan.workload.seq_len, seed, device)
    if meshes.data is None and meshes.data_ranks > 1:
        return data_parallel.replicate(model, plan)
    return model
