"""How exact a plan's training can be, and how exact it must be."""

from strategist.contract.plan import Plan

EXACT = 1e-5
"""Relative, in fp32: other orders of summation reach 1e-6."""

TOLERANCES = {"exact": (EXACT, EXACT), "fp16": (1e-4, 1e-2), "bf16": (1e-3, 5e-2), "float8": (1e-3, 0.3), "low rank": (5e-3, 1.0)}
"""Of losses and of gradients. bf16 has 8 bits of mantissa, so a gradient may be wrong in its third digit, fp16 11, float8 3; the
loss is a mean over many tokens. PowerSGD's gradients lack what it sends later; those of the first step are whole."""


def rounding(plan: Plan) -> str:
    """What is the least exact in it."""
    knobs, precision = plan.candidate.knobs, plan.workload.precision
    if knobs.comm_hook == "powersgd":
        return "low rank"
    if knobs.float8 != "none":
        return "float8"
    for kind in ("bf16", "fp16"):
        if kind in (precision.removesuffix("-true"), knobs.reduce_dtype, knobs.comm_hook):
            return kind
    return "exact"
