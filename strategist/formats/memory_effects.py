"""Bounds on memory where entries have no price: the parts of an estimate that each entry could remove or add."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.plan import Plan
from strategist.formats.script_arguments import HINTS, MODES, RANKS, SEQUENCE, SWITCHES, WEIGHT_TYPES
from strategist.frozen import frozen
from strategist.units import show_bytes

STATES = ("gradients", "optimizer")
COMPUTED = ("activations", "logits", "allocator")
COMMUNICATED = ("unsharded_parameters", "communication")
TEMPORARY = (*COMPUTED, *COMMUNICATED)
"""Parts that exist only within a step."""

HOST, WHOLE = "host", "whole "
"""Further parts: a device's share of host memory; and, with this prefix, an unsharded part (the sum over its sharding ranks)."""

NAMES = {
    **{name: name.replace("_", " ") for name in (*STATES, *TEMPORARY, "parameters")}, HOST: "what lies in host memory",
    **{WHOLE + name: f"whole {name} on each device" for name in (*STATES, "parameters")},
}  # fmt: skip


@frozen
class Effect:
    """Effect of an entry on memory.

    removes: by part, the largest share of it that the entry could save.
    repeats: by part, how many times more the entry could add it.
    open: whether the entry could do either without bound.
    """

    removes: Mapping[str, float] = field(default_factory=dict)
    repeats: Mapping[str, float] = field(default_factory=dict)
    open: bool = False


def _effect(*, removes: tuple[str, ...] = (), repeats: tuple[str, ...] = (), open: bool = False) -> Effect:
    return Effect(removes=dict.fromkeys(removes, 1.0), repeats=dict.fromkeys(repeats, 1.0), open=open)


NO_EFFECT, UNKNOWN_EFFECT = Effect(), _effect(removes=TEMPORARY)
"""Effects of entries that change only the time, and of unknown entries, which leave parameters and states as they are."""

RUNTIME_VALUE = _effect(removes=("parameters", *STATES, *TEMPORARY, HOST), open=True)
"""Effect of values that are known only at run time."""

OTHER_TRAINING = Effect(removes={**dict.fromkeys((*STATES, *TEMPORARY), 1.0), "parameters": 0.5}, open=True)
"""Effect of entries that freeze weights which are priced as trained: frozen weights have 16 bits and no states."""

QUANTIZED_BASE = Effect(removes={"parameters": 0.75})
"""Effect of a frozen base in 4 bits that is priced in 16."""

LESS_TRAINING = Effect(removes={**dict.fromkeys((*STATES, *TEMPORARY), 1.0), "parameters": 0.9})
"""Effect of arguments that may freeze and quantize what is priced as trained: of 4 bytes half of one stays."""

OTHER_VOCABULARY = Effect(repeats={"logits": 4.0})
"""Effect of a vocabulary that is assumed as GPT-2's 50 thousand: published models have up to five times as many."""

STORED_TYPE = Effect(removes=dict.fromkeys(("parameters", *STATES, "communication"), 0.5))
"""Effect of weights that may be trained in 16 bits and are priced in 32."""

FULLY_TRAINED_MODULES = Effect(repeats={"parameters": 8.0})
"""Effect of modules that are fully trained beside adapters: 16 bytes a parameter instead of 2 (arXiv 1910.02054, section 3.1)."""

_GROUPS: tuple[tuple[Effect, str], ...] = (
    (NO_EFFECT, "neat_packing packing pissa_init neftune_noise_alpha use_eaft relora rampup-batch-size step-batch-size-schedule "
           "zero_optimization.contiguous_gradients "
           "overlap-grad-reduce window-size delay-wgrad-compute hierarchical-context-parallel-sizes "
           "per_device_eval_batch_size zero_optimization.allgather_partitions zero_optimization.reduce_scatter "
           "zero_optimization.round_robin_gradients max_prompt_length "
           "expert_parallel.async_split_plan DDPStrategy.model_averaging_period torch_empty_cache_steps"),
    (_effect(removes=COMPUTED), "enable_liger_kernel use_liger_kernel plugins use_unsloth chunked_cross_entropy lora_mlp_kernel "
           "fp8 enable_fp8_training fp4-format mixture_of_depths shift_attn use_glm_dsa_kernels "
           "cpu-offloading-num-layers moe-expert-capacity-factor fine-grained-activation-offloading "
           "data_efficiency.enabled auto_find_batch_size "
           "activation_checkpointing.partition_activations recompute-granularity recompute-activations"),
    (_effect(removes=COMPUTED, repeats=COMPUTED), "recompute-num-layers recompute-modules hybrid-context-parallel use_dora "
           "peft_use_dora model.use_dora overlap-moe-expert-parallel-comm sequence_parallel_size cp-comm-type torch_compile_mode"),
    (_effect(repeats=COMPUTED), "moe-token-dispatcher-type cuda-graph-impl enable-cuda-graph"),
    (_effect(removes=COMMUNICATED, repeats=COMMUNICATED), "tp-comm-overlap"),
    (_effect(removes=COMMUNICATED), "*bucket* *prefetch* *persistence* *sub_group_size *max_live_parameters *max_reuse_distance "
           "zero_optimization.zero_quantized_weights "
           "zero_optimization.zero_quantized_nontrainable_weights"),
    (_effect(removes=("gradients", "communication")), "zero_optimization.zero_quantized_gradients"),
    (_effect(removes=("gradients",), repeats=("gradients",)), "data_types.grad_accum_dtype communication_data_type"),
    (_effect(removes=STATES), "use_adam_mini use_galore use_apollo lora_target adapter "
           "model.lora_attn_modules outer-dp-sharding-strategy "
           "use-precision-aware-optimizer main-grads-dtype fp16.fp16_master_weights_and_grads"),
    (_effect(removes=("parameters", *STATES)), "deepspeed_config.zero_stage"),
    (OTHER_VOCABULARY, "tokenizer-model"),
    (_effect(removes=("optimizer",), repeats=("optimizer",)), "optim optimizer optimizer.type "
           "optimizer._component_ optimizer.optimizer_factory.name"),
    (_effect(removes=("parameters",), repeats=("parameters",)), "quantization_bit quantization_method load_in_8bit"),
    (_effect(removes=("logits",), repeats=("logits",)), "loss._component_"),
    (_effect(repeats=("parameters",)), "zero_optimization.zero_hpz_partition_size qat hybrid_engine.enabled"),
    (_effect(repeats=("parameters", *STATES, *TEMPORARY)), "mtp-num-layers"),
    (_effect(repeats=("parameters", *TEMPORARY)), "stage rl pref_ftx beta num_generations teacher_model._component_"),
    (_effect(repeats=(WHOLE + "optimizer",)), "use-distributed-optimizer parallelism.context_parallel_size"),
    (_effect(repeats=(WHOLE + "parameters",)), "fsdp_config.auto_wrap_policy fsdp_config.fsdp_auto_wrap_policy"),
    (_effect(repeats=tuple(WHOLE + name for name in ("parameters", *STATES))), "fsdp"),
    (_effect(removes=(HOST,)), "zero_optimization.offload_optimizer.device zero_optimization.offload_param.device"),
    (_effect(removes=(HOST,), repeats=(HOST,)), "zero_optimization.offload_optimizer.ratio optimizer-offload-fraction"),
    (QUANTIZED_BASE, " ".join((*MODES, *SWITCHES, *RANKS))),
    (FULLY_TRAINED_MODULES, "additional_target lora_modules_to_save"),
    (OTHER_TRAINING, "finetuning_type unfrozen_parameters use_llama_pro use_badam"),
    (RUNTIME_VALUE, "use_kt use_mca use_hyper_parallel expert_parallel_size use_cpu"),
)  # fmt: skip
LAUNCH_FILE = "accelerate launch --config_file"
"""Config file of a trainer's launcher, which can shard what the trainer's own file does not."""

IMAGE_ENCODER = "image encoder"
"""Part of a model that no shape describes: its weights and activations come on top of the text part's."""

REFERENCE_MODEL = "reference model"
"""A second, frozen model, whose answers a loss compares with those of the trained one."""

QUANTIZED_WEIGHTS = "stored weights"
"""Weights that are quantized on disk in a type without a price: loaded as they are, they are smaller than priced."""

COMPUTE_TYPE = "compute type"
"""Type of matmuls that a device lacks: the one that is priced in its place has as many bits."""

EFFECTS = {name: effect for effect, names in _GROUPS for name in names.split()}
EFFECTS |= dict.fromkeys(HINTS, LESS_TRAINING) | dict.fromkeys(WEIGHT_TYPES, STORED_TYPE)
EFFECTS[LAUNCH_FILE] = _effect(removes=("parameters", *STATES))
EFFECTS[IMAGE_ENCODER] = _effect(open=True)
EFFECTS[REFERENCE_MODEL] = EFFECTS["rl"]
EFFECTS[QUANTIZED_WEIGHTS] = QUANTIZED_BASE
EFFECTS[COMPUTE_TYPE] = NO_EFFECT
"""Effects of entries, by name or pattern. Any other entry is UNKNOWN, or OPEN if its value is unresolved."""

ASSUMED = {
    **dict.fromkeys((*SEQUENCE, "sequence_len", "tokenizer.max_seq_len"), _effect(removes=COMPUTED)),
    "vocab-size": OTHER_VOCABULARY,
}
"""Effects of assumptions that the data or the tokenizer decide, by entry."""

OF_SCRIPTS = dict.fromkeys(("use_liger", "use_liger_loss", "liger_kernel"), _effect(removes=COMPUTED))
"""Effects of arguments that scripts of transformers' Trainer give to kernels themselves; the Trainer does not know their names."""

UNPRICED, UNRESOLVED = ("FMT-002", "FMT-009"), "FMT-011"
"""Codes of findings on entries that have no price."""

LAUNCHER = ("nproc-per-node", "nproc_per_node", "nnodes", "num_processes", "num_machines")
"""Entries that state the number of devices, which the request gives as well."""


def effect(found: Diagnostic) -> Effect:
    """Possible effect on memory of a finding's entry."""
    if found.code == "FMT-003":
        return ASSUMED.get(found.entry, NO_EFFECT)
    if found.code == "FMT-001":
        return OF_SCRIPTS.get(found.entry, NO_EFFECT)
    if found.code not in (*UNPRICED, UNRESOLVED) or found.entry in LAUNCHER:
        return NO_EFFECT
    other = RUNTIME_VALUE if found.code == UNRESOLVED else UNKNOWN_EFFECT
    return next((effect for name, effect in EFFECTS.items() if fnmatchcase(found.entry, name)), other)


@frozen
class Bounds:
    """Bounds on memory, in bytes.

    min_bytes, max_bytes: of a device.
    host_min_bytes: of a node's host memory.
    saves, costs: what entries could save or add, in words.
    open: entries without a bound, in words.
    """

    min_bytes: float
    max_bytes: float
    host_min_bytes: float
    saves: tuple[str, ...]
    costs: tuple[str, ...]
    open: tuple[str, ...]


def bounds(plan: Plan, findings: Sequence[Diagnostic]) -> Bounds:
    """Bounds on memory that hold whatever the findings' entries do.

    What remains of the step's peak without the removable parts is a lower bound: without them, another instant may be the peak.
    """
    estimate = plan.estimate
    known = {found.entry: item for found in findings if (item := effect(found)) != NO_EFFECT}
    bounded = {name: item for name, item in known.items() if not item.open}
    ranks, parts = plan.candidate.layout.fsdp_ranks, estimate.memory.needed
    sizes = parts | {WHOLE + part: parts[part] * ranks for part in ("parameters", *STATES)}
    sizes[HOST] = estimate.host_memory_bytes_per_node / plan.cluster.gpus_per_node
    removed = {part: max((item.removes.get(part, 0.0) for item in known.values()), default=0.0) for part in (*parts, HOST)}
    return Bounds(
        min_bytes=estimate.peak_memory_bytes - sum(size * removed[part] for part, size in parts.items()),
        max_bytes=estimate.peak_memory_bytes + sum(_total_bytes(item.repeats, sizes) for item in known.values()),
        host_min_bytes=estimate.host_memory_bytes_per_node * (1 - removed[HOST]),
        saves=tuple(
            f"{name} could save {text}" for name, item in bounded.items() if (text := _upper_bound_text(item.removes, sizes))
        ),
        costs=tuple(
            f"{name} could add {text}" for name, item in bounded.items() if (text := _upper_bound_text(item.repeats, sizes))
        ),
        open=tuple(_open_message(found) for found in findings if effect(found).open),
    )


def _open_message(found: Diagnostic) -> str:
    """The message of an open finding, without the assumption."""
    return found.message.partition(": ")[0] if found.code == UNRESOLVED else found.message


def _total_bytes(shares: Mapping[str, float], parts: Mapping[str, float]) -> float:
    return sum(share * parts[part] for part, share in shares.items())


def _upper_bound_text(shares: Mapping[str, float], parts: Mapping[str, float]) -> str:
    """Upper bound in bytes, with the names of the parts; empty without any."""
    names = ", ".join(NAMES[part] for part in shares if parts[part])
    return f"up to {show_bytes(_total_bytes(shares, parts))} ({names})" if names else ""
