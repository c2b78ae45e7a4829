"""What a simulation can't do, said in one line; and what stands in for what it does in another way."""

import traceback
from collections.abc import Iterator
from pathlib import Path

from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist_runtime.capability import refusals
from strategist_runtime.simulate.reduced import replicas

RUN = "run the plan (strategist run), or rely on its estimate (strategist plan)"

KNOBS = {
    "adapters/torchao.py": ("float8", "optimizer"),
    "optimizers/muon.py": ("optimizer",),
    "optimizers/host_optimizer.py": ("offload",),
    "optimizers/in_backward.py": ("optimizer_in_backward",),
    "parallel/activations.py": ("activation_offload",),
    "parallel/comm_hooks.py": ("comm_hook",),
    "parallel/context.py": ("cp", "cp_attention", "cp_load_balance"),
    "parallel/experts.py": ("ep", "etp"),
    "model/experts.py": ("grouped_gemm", "token_alignment"),
    "model/lora.py": ("train",),
    "model/nf4.py": ("train",),
    "parallel/pipeline.py": ("pp_schedule",),
    "recompute.py": ("recompute", "saved_operations"),
    "compat_recompute.py": ("recompute", "saved_operations"),
    "simulate/reducer.py": ("comm_hook", "dp_replicate"),
}
"""The settings that have torch come through a file of this runtime."""


def check(plan: Plan) -> None:
    """Raises InputError for what no trial would run, and for what has to be seen with values."""
    for law in refusals(plan):
        value, _, rest = law.partition(": ")
        reason, _, do = (rest or law).rpartition("; ")
        raise InputError(value if rest else "plan", reason or law, do or "correct the plan")
    if plan.candidate.knobs.offload == "streamed":
        law = "stages that live on the host and travel while others compute are copied by threads, which see no simulated tensors"
        raise InputError("offload streamed", law, RUN)


def notes(plan: Plan) -> Iterator[str]:
    """What is simulated otherwise than it would run, for whoever reads the figures."""
    knobs, model = plan.candidate.knobs, plan.model
    if knobs.recompute == "budget":
        yield "recompute budget is the compiler's choice: simulated with every activation kept, so memory is an upper bound"
    if knobs.compile:
        yield "compiled layers run as they are written, which keeps and moves more than fused kernels do"
    if model.moe is not None:
        yield "experts are visited evenly: a rank that gets more tokens than others needs more memory"
    if replicas(plan.candidate):
        yield "DDP's buckets are filled and reduced by a stand-in for torch's reducer, in the same order"


def keeps_more(plan: Plan) -> bool:
    """Whether what is simulated keeps more than what would run."""
    return plan.candidate.knobs.compile or plan.candidate.knobs.recompute == "budget"


def unexpected(error: Exception, plan: Plan) -> InputError:
    """What torch can't do without values: the operator where the error names one, and the settings that lead there."""
    operator = getattr(error, "func", None)
    said = str(error).strip().splitlines() or [""]
    what = f"{operator} on tensors without values" if operator is not None else f"{type(error).__name__}: {said[0]}"
    return InputError(_blamed(error, plan), f"torch could not simulate it ({what})", RUN)


def _blamed(error: Exception, plan: Plan) -> str:
    """The settings of the innermost file of this runtime that says more than that a model runs."""
    room = Path(__file__).resolve().parent.parent
    places = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    files = [str(place.relative_to(room)) for place in reversed(places) if place.is_relative_to(room)]
    names = next((KNOBS[file] for file in files if file in KNOBS), ())
    candidate = plan.candidate
    values = {**vars(plan.workload), **vars(candidate.layout), **vars(candidate.knobs), **vars(candidate.options)}
    return ", ".join(f"{name} {values[name]}" for name in names) or f"plan {plan.id}"
