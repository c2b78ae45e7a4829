"""Expected precision of a plan's training, and tolerances."""

from strategist.contract.plan import Plan

EXACT = 1e-5
"""Relative tolerance in fp32: other summation orders differ by 1e-6."""

TOLERANCES = {"exact": (EXACT, EXACT), "fp16": (1e-4, 1e-2), "bf16": (1e-3, 5e-2), "float8": (1e-3, 0.3), "low rank": (5e-3, 1.0)}
"""Relative tolerances of losses and of gradients. bf16 has 8 bits of mantissa, so the third digit of a gradient may differ; fp16
has 11, float8 3. The loss is a mean over many tokens. PowerSGD defers part of the gradients after the first step."""


def rounding(plan: Plan) -> str:
    """The least precise arithmetic of the plan."""
    knobs, precision = plan.candidate.knobs, plan.workload.precision
    if knobs.comm_hook == "powersgd":
        return "low rank"
    if knobs.float8 != "none":
        return "float8"
    for kind in ("bf16", "fp16"):
        if kind in (precision.removesuffix("-true"), knobs.reduce_dtype, knobs.comm_hook):
            return kind
    return "exact"
