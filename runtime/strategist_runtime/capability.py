"""The settings that this runtime supports, as data; free of torch, so that a query is cheap.

``profiles/backends/native.yaml`` has the same for the deciding half; a test keeps them equal.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.plan import Plan
from strategist_runtime.capability_external_model import external_model_refusals

DEFAULTS = TrialSettings()
FLOAT8_MULTIPLE = 16
"""Both lengths of a float8 matrix must be multiples of this (torch._scaled_mm)."""

DEVICES = ("cpu", "cuda")
HOST_UPDATABLE_OPTIMIZERS = ("adamw", "adamw_bf16", "sgd")
"""Optimizers whose updates are plain arithmetic, so that a host thread may run them during a backward pass."""

QUANTISED_BLOCK = 64
"""Number of 4-bit weights of a row that share a constant: strategist_runtime.model.nf4."""

LAYOUT_VALUES: dict[str, tuple[int, ...]] = {}
"""Axes that are limited to these degrees; any other axis takes any degree."""

KNOB_VALUES: dict[str, tuple[bool | int | str, ...]] = {"ep_overlap": (False,)}
"""Knobs that are limited to these values; any other knob takes every legal value."""

OPTION_VALUES: dict[str, tuple[bool | int | str, ...]] = {}
"""Options that are limited to these values where they have an effect; any other option takes every legal value.

checkpoint, checkpoint_interval and max_restarts have an effect on trainings only, which are saved and restarted. ``rendezvous``
is the launcher's. NCCL's, the device's and the allocator's options are set by the launcher of the ranks
(``strategist.contract.environment``).
"""

WORKLOAD_VALUES: dict[str, tuple[str, ...]] = {"train": ("full", "lora", "qlora")}
MODEL_VALUES: dict[str, tuple[bool | int | str, ...]] = {
    "layer_norms": (2,), "qk_norm_all_heads": (False,), "embedding_norm": (False,), "head_bias": (False,),
}  # fmt: skip
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2")
ROPE_SCALINGS = ("linear", "llama3", "yarn")
"""Supported activations of feed-forwards, and supported kinds of RopeScaling."""


def refusals(plan: Plan, settings: TrialSettings = DEFAULTS) -> tuple[str, ...]:
    """Why this runtime does not run ``plan``: a sentence each with the value, the limit and the next step; empty if it does."""
    model_refusals = external_model_refusals(plan, settings) if settings.hugging_face else _native_refusals(plan, settings)
    return (*common_refusals(plan), *model_refusals)


def common_refusals(plan: Plan) -> Iterator[str]:
    """Refusals that do not depend on the kind of model."""
    yield from _outside({"device": DEVICES}, {"device": plan.cluster.device.kind}, "choose another cluster")
    yield from _outside(WORKLOAD_VALUES, vars(plan.workload), "choose it, or another back end")
    yield from _arithmetic_refusals(plan)
    for law in plan.candidate.violations(plan.model, plan.workload, plan.cluster.devices):
        yield f"{law}; correct the plan"
    yield from _adapter_refusals(plan)


def _native_refusals(plan: Plan, settings: TrialSettings) -> Iterator[str]:
    """Refusals of the native decoder."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    advice = "choose it, or another back end"
    yield from _outside(LAYOUT_VALUES, vars(layout), advice)
    yield from _outside(KNOB_VALUES, vars(knobs), advice)
    effective = {name: values for name, values in OPTION_VALUES.items() if plan.candidate.acts(name, plan.model)}
    yield from _outside(effective, vars(plan.candidate.options), advice)
    yield from _outside(MODEL_VALUES, _traits(plan.model), "choose another model or back end")
    stage_layers, stages = plan.estimate.pipeline_layers, layout.pp * knobs.pp_virtual_stages
    if stage_layers and (len(stage_layers) != stages or sum(stage_layers) != plan.model.layers or min(stage_layers) < 1):
        yield f"pipeline_layers {stage_layers}: {stages} stages share {plan.model.layers} layers, each at least one; plan again"
    yield from _mask_refusals(plan, settings)
    yield from _expert_refusals(plan)
    yield from _model_refusals(plan.model, plan.workload.seq_len)


def _model_refusals(model: ModelShape, seq_len: int) -> Iterator[str]:
    """Refusals of properties of the model shape: positions, activation, RoPE scaling."""
    advice = "choose another model"
    name, size = ("rope_head_size", model.mla.rope_head_size) if model.mla else ("head_size", model.head_size)
    if size % 2 and not model.learned_positions:
        yield f"{name} {size}: rotary positions rotate pairs of elements; choose a model with an even {name}"
    if 0 < model.learned_positions < seq_len:
        yield f"seq_len {seq_len}: the model has learned {model.learned_positions} positions; choose a shorter sequence"
    if model.ffn_activation not in ACTIVATIONS:
        yield f"activation {model.ffn_activation}: this runtime computes {', '.join(ACTIVATIONS)}; {advice}"
    if model.rope_scaling is not None and model.rope_scaling.kind not in ROPE_SCALINGS:
        yield f"rope_scaling {model.rope_scaling.kind}: this runtime computes {', '.join(ROPE_SCALINGS)}; {advice}"


def _arithmetic_refusals(plan: Plan) -> Iterator[str]:
    """Refusals of types, kernels and offloaded updates, and of missing libraries."""
    layout, knobs, model, workload = plan.candidate.layout, plan.candidate.knobs, plan.model, plan.workload
    if plan.candidate.options.async_tp and plan.cluster.device.kind != "cuda":
        yield f"async_tp True: peers' memory is read over NVLink, which {plan.cluster.device.kind} has not; choose async_tp False"
    if plan.candidate.options.async_tp and plan.cluster.devices_share_one_gpu:
        yield "async_tp True, devices_share_one_gpu True: torch maps memory of other GPUs only; choose async_tp False"
    extra = {f"float8 {knobs.float8}": knobs.float8 != "none", "optimizer adamw8bit": workload.optimizer == "adamw8bit"}
    for name in (name for name, is_requested in extra.items() if is_requested and find_spec("torchao") is None):
        yield f"{name}: needs torchao, which is not installed; pip install 'torch-strategist[torchao]'"
    widths: dict[str, float] = {
        "hidden_size": model.hidden_size,
        "tokens of a micro-batch": knobs.micro_batch * workload.seq_len // layout.cp,
    }
    widths |= {
        f"{name} / tp": size / layout.tp for name, size in {"ffn_size": model.ffn_size, "attention": model.attended_width}.items()
    }
    for name, width in widths.items():
        if knobs.float8 != "none" and width % FLOAT8_MULTIPLE:
            yield f"{name} {width:g}: float8 multiplies in pieces of {FLOAT8_MULTIPLE}; choose float8 none"
    if workload.compute_dtype == "fp16" and knobs.optimizer_in_backward:
        yield "optimizer_in_backward True: a step in fp16 is taken only if no gradient overflowed; choose precision bf16"
    updates_in_thread = knobs.optimizer_in_backward and knobs.offload in ("optimizer", "all")
    if updates_in_thread and workload.optimizer not in HOST_UPDATABLE_OPTIMIZERS:
        law = "a thread updates beside the backward pass, in which muon would gather and adamw8bit compile"
        yield f"optimizer_in_backward True, optimizer {workload.optimizer}: {law}; choose optimizer_in_backward False"
    if knobs.offload == "streamed" and knobs.float8 != "none":
        yield f"float8 {knobs.float8}: stages are streamed as they are, not in float8; choose another offload"


def _mask_refusals(plan: Plan, settings: TrialSettings) -> Iterator[str]:
    """Refusals of attention that is not purely causal."""
    candidate, model = plan.candidate, plan.model
    not_causal = {
        "packed documents": settings.document_tokens(plan.workload) > 0,
        "attention_sinks True": model.attention_sinks,
        f"sliding_window {model.sliding_window}": 0 < model.sliding_window < plan.workload.seq_len,
    }
    for name in (name for name, is_present in not_causal.items() if is_present):
        if candidate.layout.cp > 1 and candidate.options.cp_attention == "sdpa":
            yield f"{name}: the ring of cp {candidate.layout.cp} is causal only; choose cp_attention flex, which gathers"


def _expert_refusals(plan: Plan) -> Iterator[str]:
    """Refusals of models with experts."""
    moe, knobs = plan.model.moe, plan.candidate.knobs
    if moe is None:
        return
    if moe.shared_expert_gate:
        yield "shared_expert_gate True: shared experts are added without a gate; choose another model or back end"
    if knobs.recompute == "budget":
        yield "recompute budget: of layers with experts only attention is compiled; choose recompute selective or full"


def _adapter_refusals(plan: Plan) -> Iterator[str]:
    """Refusals of LoRA and QLoRA."""
    train, model, layout = plan.workload.train, plan.model, plan.candidate.layout
    if train == "full":
        return
    if train == "qlora" and (model.moe is not None or model.mla is not None):
        yield "train qlora: this runtime has 4-bit weights in dense layers with attention of heads only; choose train lora"
    if plan.candidate.knobs.offload == "streamed" and train == "qlora":
        yield "train qlora: this runtime streams weights in the type that is computed in; choose train lora with offload streamed"
    inputs = {"hidden_size": model.hidden_size, "heads x head_size": model.heads * model.head_size, "ffn_size": model.ffn_size}
    for name, size in inputs.items():
        ranks = 1 if name == "hidden_size" else layout.tp
        if train == "qlora" and size % (QUANTISED_BLOCK * ranks):
            yield f"{name} {size}: {ranks} tp ranks must share blocks of {QUANTISED_BLOCK} 4-bit weights; choose train lora"


def _traits(model: ModelShape) -> dict[str, object]:
    """The model's fields; ``moe`` and ``mla`` as booleans."""
    return {**vars(model), "moe": model.moe is not None, "mla": model.mla is not None}


def _outside(allowed: Mapping[str, tuple[object, ...]], values: Mapping[str, object], advice: str) -> Iterator[str]:
    for name, choices in allowed.items():
        if values[name] not in choices:
            yield f"{name} {values[name]}: this runtime runs {name} {' or '.join(map(str, choices))} only; {advice}"
