"""Plans that a simulation cannot run, and notes on what it approximates, one line each."""

import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist_runtime.capability import common_refusals, refusals
from strategist_runtime.capability_external_model import limits
from strategist_runtime.simulate.trace_reduction import replicas
from strategist_runtime.simulate.user_model import OPTION, UserModel, user_code_location

ADVICE = "run the plan (strategist run), or rely on its estimate (strategist plan)"

KNOBS = {
    "adapters/torchao.py": ("float8", "optimizer"),
    "optimizers/muon.py": ("optimizer",),
    "optimizers/host_optimizer.py": ("offload",),
    "optimizers/in_backward.py": ("optimizer_in_backward",),
    "parallel/activation_offload.py": ("activation_offload",),
    "parallel/comm_hooks.py": ("comm_hook",),
    "parallel/context.py": ("cp", "cp_attention", "cp_load_balance"),
    "parallel/experts.py": ("ep", "etp"),
    "model/experts.py": ("grouped_gemm", "token_alignment"),
    "model/lora.py": ("train",),
    "model/nf4.py": ("train",),
    "parallel/pipeline.py": ("pp_schedule",),
    "activation_checkpointing.py": ("recompute", "saved_operations"),
    "compat/recompute.py": ("recompute", "saved_operations"),
    "simulate/reducer.py": ("comm_hook", "dp_replicate"),
}
"""The settings that lead torch into a file of this runtime."""


def check(plan: Plan, user_model: UserModel | None = None, *, copies_synchronously: bool = False) -> None:
    """Refuses plans that no trial would run, and streamed stages, whose copies other threads make. ``copies_synchronously``:
    these copies are made in the calling thread, so streamed stages are allowed.

    Raises:
        InputError: the plan cannot be simulated.
    """
    for law in refusals(plan) if user_model is None else (*common_refusals(plan), *_user_model_refusals(plan)):
        raise InputError.parsed(law, "correct the plan")
    if plan.candidate.knobs.offload == "streamed" and not copies_synchronously:
        law = "streamed stages are copied by background threads, which cannot be simulated"
        raise InputError("offload streamed", law, ADVICE)


def _user_model_refusals(plan: Plan) -> Iterator[str]:
    """Reasons to refuse a plan with a user's model."""
    candidate = plan.candidate
    knobs = replace(candidate.knobs, sequence_parallel=False)  # the model's own tensor parallel plan decides
    yield from limits(replace(plan, candidate=replace(candidate, knobs=knobs)), "a model of your own")
    if plan.workload.train == "qlora":
        yield "train qlora: only layers of known models have 4-bit weights; choose train lora or full"
    if plan.workload.document_tokens:
        yield "document_tokens: a model of your own is given none; leave them out of the plan"


def notes(plan: Plan, user_model: UserModel | None = None) -> Iterator[str]:
    """Differences between the simulation and a real run, shown with its figures."""
    knobs, model = plan.candidate.knobs, plan.model
    if user_model is not None:
        yield f"the model is {user_model.reference}'s, in the place of {model.name}" + (
            ", and what tp cuts is its own to say" if plan.candidate.layout.tp > 1 else ""
        )
    if knobs.recompute == "budget":
        yield "recompute budget is the compiler's choice: simulated with every activation kept, so memory is an upper bound"
    if knobs.compile:
        yield "compiled layers run as they are written, which keeps and moves more than fused kernels do"
    if model.moe is not None and user_model is None:
        yield "experts are visited evenly: a rank that gets more tokens than others needs more memory"
    if replicas(plan.candidate):
        yield "DDP's buckets are filled and reduced by a stand-in for torch's reducer, in the same order"


def overestimates_memory(plan: Plan) -> bool:
    """Whether the simulation keeps more memory than a real run would."""
    return plan.candidate.knobs.compile or plan.candidate.knobs.recompute == "budget"


def unsupported_operator(error: Exception, plan: Plan, reference: str = "") -> InputError:
    """The error for an operation that torch cannot run on tensors without values: the operator, if the error names one, and the
    settings that lead there, or the line of the user's model named by ``reference``.
    """
    operator = getattr(error, "func", None)
    lines = str(error).strip().splitlines() or [""]
    reason = f"{operator} on tensors without values" if operator is not None else f"{type(error).__name__}: {lines[0]}"
    if location := user_code_location(error) if reference else "":
        law = f"could not be simulated ({reason})"
        return InputError(f"{OPTION} {reference}, {location}", law, "correct it; nothing there may depend on values of tensors")
    return InputError(_settings_of(error, plan), f"torch could not simulate it ({reason})", ADVICE)


def _settings_of(error: Exception, plan: Plan) -> str:
    """The settings of the innermost file of this runtime in the traceback that ``KNOBS`` lists; the plan's id if there is none."""
    runtime_folder = Path(__file__).resolve().parent.parent
    paths = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    files = [str(path.relative_to(runtime_folder)) for path in reversed(paths) if path.is_relative_to(runtime_folder)]
    names = next((KNOBS[file] for file in files if file in KNOBS), ())
    candidate = plan.candidate
    values = {**vars(plan.workload), **vars(candidate.layout), **vars(candidate.knobs), **vars(candidate.options)}
    return ", ".join(f"{name} {values[name]}" for name in names) or f"plan {plan.id}"
