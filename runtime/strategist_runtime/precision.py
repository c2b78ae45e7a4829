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
    """In which parameters that learn, gradients and optimizer states lie: fp32, but for ``bf16-true``; LoRA's always in fp32."""
    return torch.bfloat16 if plan.workload.precision == "bf16-true" and plan.workload.train == "full" else torch.float32


def model_dtype(plan: Plan) -> torch.dtype:
    """In which the parameters of the model itself lie; frozen ones as they are computed with."""
    return stored_dtype(plan) if plan.workload.train == "full" else compute_dtype(plan)


def store(model: nn.Module, plan: Plan) -> None:
    """Has the parameters of a meta model lie in their type."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(stored_dtype(plan))


def compute_dtype(plan: Plan) -> torch.dtype:
    """In which matmuls compute."""
    return DTYPES[plan.workload.compute_dtype]


def reduce_dtype(plan: Plan) -> torch.dtype:
    """In which gradients travel between data ranks."""
    return DTYPES[plan.candidate.knobs.reduce_dtype]


def fsdp_policy(plan: Plan) -> MixedPrecisionPolicy:
    """What FSDP2 casts parameters to before it gathers them, and gradients to before it reduces them."""
    return MixedPrecisionPolicy(param_dtype=compute_dtype(plan), reduce_dtype=reduce_dtype(plan))


def forward_context(plan: Plan, on: torch.device) -> AbstractContextManager[None]:
    """Around the forward pass: autocast where no FSDP2 casts the parameters, else nothing."""
    if compute_dtype(plan) is model_dtype(plan) or uses_fsdp(plan.candidate.layout, plan.candidate.knobs.offload):
        return nullcontext()
    return autocast(on, compute_dtype(plan))
