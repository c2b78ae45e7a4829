"""Exports a plan as the TOML file of TorchTitan 0.2, whose last release is 0.2.2 (torchtitan/config/job_config.py)."""

from collections.abc import Iterator
from math import ceil
from typing import Any

from strategist.contract.plan import Plan
from strategist.formats.commented_text import heading, toml_text
from strategist.formats.export_notes import header_lines
from strategist.formats.format import File
from strategist.formats.torchtitan_models import Base
from strategist.formats.torchtitan_names import DTYPES, KERNELS, PARALLEL, SCHEDULES, reshard_word

FILE = "titan_plan.toml"
FLAVOURS = {
    "llama3": ("8B", "70B", "405B"),
    "qwen3": ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B"),
    "deepseek_v3": ("671B",),
}
"""Flavours of 0.2.2 that have a preset here."""

MODES = {"none": "none", "selective": "selective", "full": "full", "budget": "memory_budget"}


def older_file(plan: Plan, base: Base | None, tokenizer: str) -> tuple[File, ...]:
    """The file; empty if 0.2 lacks the model or would run something else.

    In 0.2 context parallelism is ring attention, tensor parallelism includes sequence parallelism, and the optimizer's moments
    are in fp32.
    """
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    known = base is not None and base.flavour in FLAVOURS.get(base.family, ())
    same_in_older = layout.cp == 1 and (layout.tp == 1 or knobs.sequence_parallel) and plan.workload.optimizer == "adamw"
    if base is None or not known or not same_in_older:
        return ()
    model = {"name": base.family, "flavor": base.flavour, "hf_assets_path": tokenizer}
    sections: dict[str, dict[str, Any]] = {
        "model": model, "training": dict(_training(plan)), "parallelism": dict(_parallelism(plan)),
        "activation_checkpoint": dict(_recompute(plan)), "compile": {"enable": knobs.compile, "components": ["model", "loss"]},
        "optimizer": {"name": "AdamW", "implementation": KERNELS[plan.candidate.options.optimizer_kernel]},
    }  # fmt: skip
    head = heading((*header_lines(plan), "0.2 makes all logits at once, which needs more memory: check prices this file"))
    return (File(name=FILE, text=f"{head}\n{toml_text(sections)}"),)


def _training(plan: Plan) -> Iterator[tuple[str, Any]]:
    micro, workload = plan.candidate.knobs.micro_batch, plan.workload
    weights, computed = DTYPES[workload.precision]
    yield "dataset", "c4"
    yield "seq_len", workload.seq_len
    yield "local_batch_size", micro * plan.accumulation if plan.candidate.layout.pp > 1 else micro
    yield "global_batch_size", workload.global_batch
    yield "dtype", weights
    yield "mixed_precision_param", computed
    yield "enable_cpu_offload", plan.candidate.knobs.offload == "all"


def _parallelism(plan: Plan) -> Iterator[tuple[str, Any]]:
    layout, knobs, options = plan.candidate.layout, plan.candidate.knobs, plan.candidate.options
    for setting, name in PARALLEL.items():
        yield name.removeprefix("parallelism."), getattr(layout, setting)
    if layout.pp > 1:
        words = {schedule: name for name, schedule in reversed(SCHEDULES.items())}
        yield "pipeline_parallel_schedule", words[knobs.pp_schedule]
        yield "pipeline_parallel_microbatch_size", knobs.micro_batch
        yield "pipeline_parallel_first_stage_less_layers", 0
        yield "pipeline_parallel_last_stage_less_layers", 0
        if knobs.pp_virtual_stages > 2:
            yield "pipeline_parallel_layers_per_stage", ceil(plan.model.layers / (layout.pp * knobs.pp_virtual_stages))
    yield "fsdp_reshard_after_forward", reshard_word(plan.candidate)
    if layout.tp > 1:
        yield "enable_async_tensor_parallel", options.async_tp


def _recompute(plan: Plan) -> Iterator[tuple[str, Any]]:
    knobs = plan.candidate.knobs
    yield "mode", MODES[knobs.recompute]
    if knobs.recompute == "selective":
        yield "selective_ac_option", "op"
    if knobs.recompute == "budget":
        yield "memory_budget", knobs.recompute_budget_percent / 100
