"""Mixed precision: types of parameters, computation and gradient reduction (arXiv 1710.03740)."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from strategist.contract.plan import Plan
from strategist_runtime.compat.kernels import autocast
from strategist_runtime.mesh import uses_fsdp

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def stored_dtype(plan: Plan) -> torch.dtype:
    """The type of trained parameters, gradients and optimizer states: bf16 for full training with ``bf16-true``, otherwise fp32;
    LoRA's are always fp32.
    """
    return torch.bfloat16 if plan.workload.precision == "bf16-true" and plan.workload.train == "full" else torch.float32


def model_dtype(plan: Plan) -> torch.dtype:
    """The type of the model's own parameters; frozen ones have the compute type."""
    return stored_dtype(plan) if plan.workload.train == "full" else compute_dtype(plan)


def store(model: nn.Module, plan: Plan) -> None:
    """Casts the parameters of a meta model to their stored type."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(stored_dtype(plan))


def compute_dtype(plan: Plan) -> torch.dtype:
    """The compute type of matmuls."""
    return DTYPES[plan.workload.compute_dtype]


def reduce_dtype(plan: Plan) -> torch.dtype:
    """The type in which gradients are reduced over data ranks."""
    return DTYPES[plan.candidate.knobs.reduce_dtype]


def fsdp_policy(plan: Plan) -> MixedPrecisionPolicy:
    """The types to which FSDP2 casts parameters before all-gathers, and gradients before reductions."""
    return MixedPrecisionPolicy(param_dtype=compute_dtype(plan), reduce_dtype=reduce_dtype(plan))


def forward_context(plan: Plan, device: torch.device) -> AbstractContextManager[None]:
    """Context of the forward pass: autocast if FSDP2 does not cast the parameters, otherwise nothing."""
    if compute_dtype(plan) is model_dtype(plan) or uses_fsdp(plan.candidate.layout, plan.candidate.knobs.offload):
        return nullcontext()
    return autocast(device, compute_dtype(plan))
