"""Effects on memory of entries that no price sees, as bounds: parts of an estimate that each could remove or bring once more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.plan import Plan
from strategist.units import show_bytes

STATES = ("gradients", "optimizer")
COMPUTED = ("activations", "logits", "allocator")
SENT = ("unsharded_parameters", "communication")
TEMPORARY = (*COMPUTED, *SENT)
"""Parts that are there only within a step."""

HOST, WHOLE = "host", "whole "
"""Of parts of another kind: a device's share of what lies in host memory; and, before a part's name, what all ranks hold of it
that share parameters."""

NAMES = {
    **{name: name.replace("_", " ") for name in (*STATES, *TEMPORARY, "parameters")}, HOST: "what lies in host memory",
    **{WHOLE + name: f"whole {name} on each device" for name in (*STATES, "parameters")},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Effect:
    """``removes`` holds the share of each part that the entry could save at most, ``repeats`` how often it could bring a part once
    more. ``open`` says that it could do either without bound."""

    removes: Mapping[str, float] = field(default_factory=dict)
    repeats: Mapping[str, float] = field(default_factory=dict)
    open: bool = False


def _effect(*, removes: tuple[str, ...] = (), repeats: tuple[str, ...] = (), open: bool = False) -> Effect:
    return Effect(removes=dict.fromkeys(removes, 1.0), repeats=dict.fromkeys(repeats, 1.0), open=open)


NONE, UNKNOWN = Effect(), _effect(removes=TEMPORARY)
"""Of entries that change the time only, and of those that nothing is known of: weights and states stay."""

OPEN = _effect(removes=("parameters", *STATES, *TEMPORARY, HOST), open=True)
"""Of values that are known only where the program runs."""

FROZEN = Effect(removes={**dict.fromkeys((*STATES, *TEMPORARY), 1.0), "parameters": 0.5}, open=True)
"""Of another training than the one that is priced: weights that are not trained lie in 16 bits, without states."""

BESIDE_ADAPTERS = Effect(repeats={"parameters": 8.0})
"""Of modules that are trained whole: 16 bytes a parameter in the place of 2 (arXiv 1910.02054, section 3.1)."""

_GROUPS: tuple[tuple[Effect, str], ...] = (
    (NONE, "neat_packing packing pissa_init neftune_noise_alpha use_eaft relora rampup-batch-size step-batch-size-schedule "
           "zero_optimization.overlap_comm zero_optimization.contiguous_gradients "
           "overlap-grad-reduce window-size delay-wgrad-compute hierarchical-context-parallel-sizes "
           "expert_parallel.async_split_plan DDPStrategy.model_averaging_period torch_empty_cache_steps"),
    (_effect(removes=COMPUTED), "enable_liger_kernel use_liger_kernel plugins use_unsloth chunked_cross_entropy lora_mlp_kernel "
           "fp8 fp4-format mixture_of_depths shift_attn use_glm_dsa_kernels cpu-offloading-num-layers moe-expert-capacity-factor "
           "fine-grained-activation-offloading data_efficiency.enabled auto_find_batch_size "
           "activation_checkpointing.partition_activations recompute-granularity recompute-activations"),
    (_effect(removes=COMPUTED, repeats=COMPUTED), "recompute-num-layers recompute-modules hybrid-context-parallel use_dora "
           "peft_use_dora overlap-moe-expert-parallel-comm sequence_parallel_size cp-comm-type torch_compile_mode"),
    (_effect(repeats=COMPUTED), "moe-token-dispatcher-type cuda-graph-impl enable-cuda-graph"),
    (_effect(removes=SENT, repeats=SENT), "tp-comm-overlap"),
    (_effect(removes=SENT), "*bucket* *prefetch* *persistence* zero_optimization.zero_quantized_weights "
           "zero_optimization.zero_quantized_nontrainable_weights"),
    (_effect(removes=("gradients", "communication")), "zero_optimization.zero_quantized_gradients"),
    (_effect(removes=("gradients",), repeats=("gradients",)), "data_types.grad_accum_dtype communication_data_type"),
    (_effect(removes=STATES), "use_adam_mini use_galore use_apollo lora_target adapter outer-dp-sharding-strategy "
           "use-precision-aware-optimizer fp16.fp16_master_weights_and_grads"),
    (_effect(removes=("optimizer",), repeats=("optimizer",)), "optim optimizer optimizer.type optimizer.optimizer_factory.name"),
    (_effect(removes=("parameters",), repeats=("parameters",)), "quantization_bit quantization_method load_in_8bit"),
    (_effect(repeats=("parameters",)), "zero_optimization.zero_hpz_partition_size qat hybrid_engine.enabled"),
    (_effect(repeats=("parameters", *STATES, *TEMPORARY)), "mtp-num-layers"),
    (_effect(repeats=("parameters", *TEMPORARY)), "stage rl pref_ftx"),
    (_effect(repeats=(WHOLE + "optimizer",)), "use-distributed-optimizer parallelism.context_parallel_size"),
    (_effect(repeats=(WHOLE + "parameters",)), "fsdp_config.auto_wrap_policy fsdp_config.fsdp_auto_wrap_policy"),
    (_effect(repeats=tuple(WHOLE + name for name in ("parameters", *STATES))), "fsdp"),
    (_effect(removes=(HOST,)), "zero_optimization.offload_optimizer.device zero_optimization.offload_param.device"),
    (_effect(removes=(HOST,), repeats=(HOST,)), "zero_optimization.offload_optimizer.ratio optimizer-offload-fraction"),
    (BESIDE_ADAPTERS, "additional_target lora_modules_to_save"),
    (FROZEN, "finetuning_type unfrozen_parameters use_llama_pro use_badam"),
    (OPEN, "use_kt use_hyper_parallel expert_parallel_size use_cpu"),
)  # fmt: skip
LAUNCH_FILE = "accelerate launch --config_file"
"""The file that the launcher of a trainer may be given: it can shard what the trainer's own file does not."""

EFFECTS = {name: effect for effect, names in _GROUPS for name in names.split()}
EFFECTS[LAUNCH_FILE] = _effect(removes=("parameters", *STATES))
"""By names of entries or patterns of them; any other is UNKNOWN, and OPEN where its value is."""

UNPRICED, UNRESOLVED = ("FMT-002", "FMT-009"), "FMT-011"
"""Codes of findings on entries that no price sees."""

LAUNCHER = ("nproc-per-node", "nproc_per_node", "nnodes", "num_processes", "num_machines")
"""Entries that say how many devices there are, which are given."""


def effect(found: Diagnostic) -> Effect:
    """What the entry of a finding could do to the memory."""
    if found.code not in (*UNPRICED, UNRESOLVED) or found.entry in LAUNCHER:
        return NONE
    other = OPEN if found.code == UNRESOLVED else UNKNOWN
    return next((effect for name, effect in EFFECTS.items() if fnmatchcase(found.entry, name)), other)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The least and the most bytes that a device could need, the least of a node's host; and in words what entries could save or
    add, and which have no bound."""

    least: float
    most: float
    host_least: float
    saves: tuple[str, ...]
    costs: tuple[str, ...]
    open: tuple[str, ...]


def bounds(plan: Plan, findings: Sequence[Diagnostic]) -> Bounds:
    """Bounds of the memory, whatever the entries of the findings do.

    What is left of the worst instant of a step bounds the need from below, for without the rest another instant may be the worst.
    """
    estimate = plan.estimate
    known = {found.entry: one for found in findings if (one := effect(found)) != NONE}
    bounded = {name: one for name, one in known.items() if not one.open}
    ranks, parts = plan.candidate.layout.fsdp_ranks, estimate.memory.needed
    more = parts | {WHOLE + part: parts[part] * ranks for part in ("parameters", *STATES)}
    more[HOST] = estimate.host_memory_bytes_per_node / plan.cluster.gpus_per_node
    removed = {part: max((one.removes.get(part, 0.0) for one in known.values()), default=0.0) for part in (*parts, HOST)}
    return Bounds(
        least=estimate.peak_memory_bytes - sum(size * removed[part] for part, size in parts.items()),
        most=estimate.peak_memory_bytes + sum(_bytes(one.repeats, more) for one in known.values()),
        host_least=estimate.host_memory_bytes_per_node * (1 - removed[HOST]),
        saves=tuple(f"{name} could save {text}" for name, one in bounded.items() if (text := _most(one.removes, more))),
        costs=tuple(f"{name} could add {text}" for name, one in bounded.items() if (text := _most(one.repeats, more))),
        open=tuple(_shown(found) for found in findings if effect(found).open),
    )


def _shown(found: Diagnostic) -> str:
    """What is open, without what was assumed."""
    return found.message.partition(": ")[0] if found.code == UNRESOLVED else found.message


def _bytes(shares: Mapping[str, float], parts: Mapping[str, float]) -> float:
    return sum(share * parts[part] for part, share in shares.items())


def _most(shares: Mapping[str, float], parts: Mapping[str, float]) -> str:
    """Bytes at most, and the parts that they are of; empty where there are none."""
    names = ", ".join(NAMES[part] for part in shares if parts[part])
    return f"up to {show_bytes(_bytes(shares, parts))} ({names})" if names else ""
