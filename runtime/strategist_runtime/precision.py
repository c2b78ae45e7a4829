"""The types in which a step computes and reduces; parameters, gradients and optimizer states stay in fp32 (arXiv 1710.03740)."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from strategist.contract.plan import Plan
from strategist_runtime import compat
from strategist_runtime.mesh import uses_fsdp

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def model_dtype(plan: Plan) -> torch.dtype:
    """In which the parameters of the model itself lie; frozen ones as they are computed with."""
    return torch.float32 if plan.workload.train == "full" else DTYPES[plan.workload.compute_dtype]


def reduce_dtype(plan: Plan) -> torch.dtype:
    """In which gradients travel between data ranks."""
    return DTYPES[plan.candidate.knobs.reduce_dtype]


def fsdp_policy(plan: Plan) -> MixedPrecisionPolicy:
    """What FSDP2 casts parameters to before it gathers them, and gradients to before it reduces them."""
    return MixedPrecisionPolicy(param_dtype=DTYPES[plan.workload.precision], reduce_dtype=reduce_dtype(plan))


def forward_context(plan: Plan, on: torch.device) -> AbstractContextManager[None]:
    """Around the forward pass: autocast where no FSDP2 casts the parameters, else nothing."""
    if model_dtype(plan) is DTYPES[plan.workload.compute_dtype] or uses_fsdp(plan.candidate.layout):
        return nullcontext()
    return compat.autocast(on, DTYPES[plan.workload.precision])
