"""TorchTitan's configurations: Python and command lines of 0.3, TOML and command lines of older versions.

Defaults: torchtitan/config/configs.py, trainer.py and distributed/ of 0.3.0, config/job_config.py of 0.2.2. Gradients are
reduced in each micro-batch, except with pipelines; logits stay sharded over tp; 0.2 has scaled dot product attention as ring
attention, 0.3 FlexAttention on gathered keys; a step of 0.3 is one CUDA graph without pipeline and expert parallelism, and its
loss computes logits in chunks (components/loss.py).
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import LOOPED, V_SHAPED, KnobValue
from strategist.contract.loss import Loss
from strategist.contract.model import ModelShape
from strategist.formats.config_entries import Entries
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import Format
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.referenced_files import find_file
from strategist.formats.source import Source
from strategist.formats.torchtitan_entries import CONFIG_FILES, NOTE, config_file, normalized
from strategist.formats.torchtitan_export import write
from strategist.formats.torchtitan_models import preset
from strategist.formats.torchtitan_names import (
    IGNORED_ENTRIES,
    PARALLEL,
    POLICY,
    SCHEDULES,
    SETTING_ENTRIES,
    UNPRICED_ENTRIES,
    WORDS,
)
from strategist.profiles.models import find_preset
from strategist.profiles.stacks import load_stack

OPTION = "activation_checkpoint.selective_ac_option"
TOKENS, STEP_TOKENS = "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step"
LENGTH, DEFAULT_TOKENS = "training.max_context_length", 16384
"""Entries since commit 73aed7f of 2026-08-20, after 0.3.0.

The first two replace local_batch_size and global_batch_size, max_context_length replaces seq_len, and num_pp_microbatches
replaces pipeline_parallel_microbatch_size.
"""


def recognises(source: Source) -> bool:
    """Whether a source is TorchTitan's: Python that imports it, flags that only it has, or TOML with its sections."""
    if source.language == "python":
        return "torchtitan" in source.text
    if source.language == "command":
        names = {name.replace("-", "_") for name in source.entries}
        return "torchtitan" in source.text or any(name.startswith(("parallelism.", "job.config_file")) for name in names)
    jobs = source.has("model.flavor") or source.has("job.dump_folder") or source.has("activation_checkpoint.mode")
    return source.language == "toml" and source.has("training") and jobs


def is_new(entries: Entries) -> bool:
    """Whether the configuration is Python, as in 0.3."""
    source = entries.source
    if source.language == "python":
        return True
    return source.language == "command" and not entries.has("job.config_file") and "CONFIG_FILE" not in source.text


def read(entries: Entries) -> ParsedConfig:
    """Settings that a configuration states; the command decides the devices."""
    new = is_new(entries)
    assets = entries.get("hf_assets_path", "model.hf_assets_path")
    name = preset(str(entries.get("model.name") or ""), str(entries.get("model.flavor") or ""), str(assets or ""))
    shape = find_preset(name) if name else None
    degrees = _degrees(entries)
    settings: dict[str, KnobValue] = {**degrees, **_sharding(entries, degrees), **_recompute(entries, degrees, new)}
    settings |= _kernels(entries, degrees, new, shape)
    findings = list(_unsupported_findings(entries))
    if degrees["pp"] > 1:
        settings |= _pipeline(entries, degrees["pp"], shape, findings)
    batch, accumulation = _batches(entries, degrees["pp"], findings)
    settings["micro_batch"] = batch.pop("micro_batch")
    train = _converters(entries, settings, findings)
    takes_remaining_devices = degrees.get("dp_shard") is None
    return ParsedConfig(
        settings=settings, workload={**_workload(entries), **batch, **train}, model=name, accumulation=accumulation,
        spare="dp_shard" if takes_remaining_devices else "", devices=_devices(entries), stack=_stack(entries, degrees, new),
        entry_names={"model": "model.flavor", **SETTING_ENTRIES},
        findings=tuple(findings),
    )  # fmt: skip


def _degrees(entries: Entries) -> dict[str, int]:
    """Degrees of the axes; dp_shard is left out if it takes the remaining devices."""
    found = {name: entries.integer(entry) or 1 for name, entry in PARALLEL.items() if name != "dp_shard"}
    shards = entries.integer(PARALLEL["dp_shard"], minimum=-1)
    if shards == 0:
        entry = PARALLEL["dp_shard"]
        raise entries.source.error(entry, f"{entry} is 0: 1 or more is needed, or -1 for all that is left")
    return found if shards in (None, -1) else {**found, "dp_shard": int(shards or 1)}


def _sharding(entries: Entries, degrees: dict[str, int]) -> dict[str, KnobValue]:
    """Settings of FSDP and tensor parallelism besides their degrees."""
    usual = degrees["pp"] == 1
    words: dict[str, tuple[bool, bool]] = {"default": (usual, False), "always": (True, True), "never": (False, False)}
    parameters, root = entries.choice(words, "parallelism.fsdp_reshard_after_forward") or words["default"]
    settings: dict[str, KnobValue] = {"reshard_after_forward": parameters, "reshard_root": root}
    sequence = entries.flag("parallelism.enable_sequence_parallel")
    unsharded = entries.flag("parallelism.disable_loss_parallel") or entries.flag("parallelism.enable_loss_parallel") is False
    if degrees["tp"] > 1:
        settings |= {"sequence_parallel": sequence is not False, "loss_parallel": not unsharded}
    settings["offload"] = "all" if entries.flag("training.enable_cpu_offload") else "none"
    return settings


def _recompute(entries: Entries, degrees: dict[str, int], new: bool) -> dict[str, KnobValue]:
    """Activation checkpointing. Before 0.3 the selective mode saved every second layer, unless its option selected operations."""
    policy = entries.choice(POLICY, "activation_checkpoint") or "selective"
    option = str(entries.get(OPTION) or ("op" if new else "2"))
    share = entries.get("activation_checkpoint.memory_budget")
    if policy == "budget":
        if share is not None and not (isinstance(share, int | float | str) and _is_share(share)):
            name = "activation_checkpoint.memory_budget"
            raise entries.source.error(name, f"{name} is {share!r}: a share from 0 to 1 is needed")
        return {"recompute": policy, "recompute_budget_percent": round(100 * float(0.5 if share is None else share))}
    if policy == "selective" and option != "op":
        if not option.isdigit():
            raise entries.source.error(OPTION, f"{OPTION} is {option}: op or a whole number is needed")
        return {"recompute": "full" if int(option) == 1 else "every_second_layer"}
    if policy == "selective":
        saved = "every_second_matmul+attention" + ("+collectives" if degrees["tp"] * degrees["ep"] > 1 else "")
        return {"recompute": policy, "saved_operations": saved}
    return {"recompute": policy}


def _is_share(value: float | str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


def _kernels(entries: Entries, degrees: dict[str, int], new: bool, shape: ModelShape | None) -> dict[str, KnobValue]:
    """Settings of the compiler, the optimizer's implementation, context-parallel attention, reduce dtype and experts."""
    components = entries.get("compile.components")
    compiled = bool(entries.flag("compile.enable")) and (not isinstance(components, list) or "model" in components)
    settings: dict[str, KnobValue] = {"compile": compiled}
    if compiled:
        settings["fullgraph"] = True
    overlapped = entries.flag("compile.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel")
    settings["async_tp"] = bool(overlapped) and degrees["tp"] > 1 and compiled
    kernel = entries.choice(WORDS["kernel"], "optimizer.implementation")
    fused = entries.flag("optimizer.fused")
    settings["optimizer_kernel"] = kernel or ("foreach" if fused is False else "fused")
    balance = entries.choice(WORDS["balance"], "parallelism.context_parallel_load_balancer")
    rotate = entries.choice(WORDS["rotate"], "parallelism.context_parallel_rotate_method")
    if degrees["cp"] > 1:
        settings |= {"cp_attention": "flex" if new else "sdpa", "cp_load_balance": balance or "head_tail"}
        settings["cp_rotate"] = rotate or "allgather"
    settings["reduce_dtype"] = entries.choice(WORDS["dtype"], "training.mixed_precision_reduce") or "fp32"
    if shape is not None and shape.moe is not None:
        settings |= {"grouped_gemm": True, "expert_balance": "bias"}
    if entries.flag("optimizer.early_step_in_backward"):
        settings["optimizer_in_backward"] = True
    return settings


def _pipeline(entries: Entries, pp: int, shape: ModelShape | None, findings: list[Diagnostic]) -> dict[str, KnobValue]:
    """The schedule and its stages per rank: the schedule's default, or the number that the layers per stage give."""
    schedule = entries.choice(SCHEDULES, "parallelism.pipeline_parallel_schedule") or "1f1b"
    first, last = (
        entries.integer(f"parallelism.pipeline_parallel_{end}_stage_less_layers", minimum=0) for end in ("first", "last")
    )
    weights = (1 if first is None else first, 1 if last is None else last)
    stages = 2 if schedule in (*LOOPED, *V_SHAPED) else 1
    name = "parallelism.pipeline_parallel_layers_per_stage"
    if layers_per_stage := entries.integer(name):
        if shape is not None:
            stages = max(1, ceil((shape.layers + sum(weights)) / layers_per_stage) // pp)
        else:
            message = f"{name} is {layers_per_stage}, and the file does not say how many layers there are"
            message += f": {stages} stages a rank are assumed"
            findings.append(finding("FMT-003", message, "give --fix pp_virtual_stages=VALUE", entries.source, name))
    split = "even" if weights == (0, 0) else "weighted"
    return {"pp_schedule": schedule, "pp_virtual_stages": stages, "pp_split": split}


def _batches(entries: Entries, pp: int, findings: list[Diagnostic]) -> tuple[dict[str, int], int | None]:
    """Micro-batch and, if it is stated, the global batch; otherwise the micro-batches per step.

    A pipeline splits the batch of a data rank into micro-batches; without one, that batch is a micro-batch.
    """
    if any(map(entries.has, (TOKENS, STEP_TOKENS, LENGTH))):
        return _token_batches(entries, pp)
    local = entries.integer("training.local_batch_size") or 8
    size = entries.integer("parallelism.pipeline_parallel_microbatch_size") or 1
    micro_batches = entries.integer("parallelism.pipeline_parallel_microbatches", minimum=0)
    global_batch = entries.integer("training.global_batch_size", minimum=-1)
    if pp > 1 and micro_batches is not None:
        size = max(1, local // (micro_batches or pp))
    if pp > 1 and local % size:
        name = "parallelism.pipeline_parallel_microbatch_size"
        raise entries.source.error(
            name, f"training.local_batch_size {local} is not a multiple of {name} {size}; change one of them"
        )
    times = local // size if pp > 1 else 1
    micro = size if pp > 1 else local
    if global_batch is None or global_batch < 1:
        return {"micro_batch": micro}, times
    replicas, shards = (entries.integer(PARALLEL[name], minimum=-1) or -1 for name in ("dp_replicate", "dp_shard"))
    if pp > 1 and shards > 0 and global_batch > local * shards * max(1, replicas):
        entry = "training.global_batch_size"
        message = f"{entry} is {global_batch}: the pipeline is filled and emptied several times a step"
        findings.append(finding("FMT-002", message, "the price is that of filling it once", entries.source, entry))
    return {"micro_batch": micro, "global_batch": global_batch}, None


def _token_batches(entries: Entries, pp: int) -> tuple[dict[str, int], int | None]:
    """The same if batches are counted in tokens: per micro-batch and data rank, and per step over all of them.

    The default is the micro-batch of a registered configuration of 0.3.0, which counts sequences, in tokens.
    """
    length = _seq_len(entries)
    local, seq_len = entries.integer("training.local_batch_size"), entries.integer("training.seq_len")
    entries.get("training.global_batch_size")
    default = local * seq_len if local and seq_len else DEFAULT_TOKENS
    micro_batches = (entries.integer("parallelism.num_pp_microbatches") or 1) if pp > 1 else 1
    found = {"micro_batch": _sequence_count(entries, TOKENS, length, default)}
    if (entries.integer(STEP_TOKENS, minimum=-1) or -1) < 1:
        return found, micro_batches
    return found | {"global_batch": _sequence_count(entries, STEP_TOKENS, length)}, None


def _sequence_count(entries: Entries, name: str, length: int, default: int = 0) -> int:
    tokens = entries.integer(name) or default
    if tokens % length:
        raise entries.source.error(
            name, f"{name} {tokens} is not a multiple of the {length} tokens of a sequence; change one of them"
        )
    return tokens // length


def _seq_len(entries: Entries) -> int:
    return entries.integer(LENGTH, "training.seq_len") or 2048


def _workload(entries: Entries) -> dict[str, Any]:
    """Precision, optimizer and sequence length."""
    weights = entries.choice(WORDS["dtype"], "training.dtype") or "fp32"
    computed = entries.choice(WORDS["dtype"], "training.mixed_precision_param") or "bf16"
    found: dict[str, Any] = {"precision": "bf16-true" if weights == "bf16" else computed}
    found["seq_len"] = _seq_len(entries)
    names = entries.get("optimizer.name")
    names = [str(name) for name in names] if isinstance(names, list) else [str(names or "AdamW")]
    halves = entries.get("optimizer.implementation") == "fused_opt_states_bf16"
    found["optimizer"] = "muon" if any("Muon" in name for name in names) else "adamw_bf16" if halves else "adamw"
    return found


def _converters(entries: Entries, settings: dict[str, KnobValue], findings: list[Diagnostic]) -> dict[str, Any]:
    """Converters of a model's linear layers: float8 and LoRA are settings; other formats of 8 bits and less become findings."""
    names = entries.get("model.converters")
    converters = [str(name) for name in names] if isinstance(names, list) else [str(names)] if names else []
    old = any(name in ("float8", "quantize.linear.float8") for name in converters)
    old |= bool(entries.flag("float8.enable_float8_linear")) | bool(entries.get("training.fp8_linear"))
    recipes = {"tensorwise": "tensorwise", "rowwise": "rowwise", "rowwise_with_gw_hp": "rowwise"}
    recipe = entries.choice(recipes, "Float8LinearConverter.recipe_name", "quantize.linear.float8.recipe_name")
    gathered = entries.flag("quantize.linear.float8.enable_fsdp_float8_all_gather")
    if old or "Float8LinearConverter" in converters:
        settings["float8"] = recipe or ("tensorwise" if old else "rowwise")
        settings["float8_all_gather"] = bool(gathered) and settings["float8"] == "tensorwise"
    for name in converters:
        if name not in ("float8", "quantize.linear.float8", "Float8LinearConverter", "LoRAConverter", "lora"):
            message = f"{name} multiplies in a format that has no price"
            findings.append(
                finding("FMT-002", message, "the price is that of a plan without it", entries.source, "model.converters")
            )
    rank = entries.integer("LoRAConverter.rank", "lora.rank")
    return {"train": "lora", "lora_rank": rank or 8} if "LoRAConverter" in converters or "lora" in converters else {}


def _stack(entries: Entries, degrees: dict[str, int], new: bool) -> dict[str, float | str | Loss]:
    """Fields of Stack: logits in chunks or, as before 0.3, at once, and steps as CUDA graphs."""
    entries.get("loss")
    chunks = entries.integer("loss.num_chunks") or 1
    replayed = new and entries.flag("training.disable_cuda_graphs") is not True and degrees["pp"] == degrees["ep"] == 1
    found: dict[str, float | str | Loss] = {"graphs": "step"} if replayed else {}
    if chunks == 1:
        return {**found, "name": "torchtitan-2025"}
    return {**found, "name": "torchtitan-2026", "loss": replace(load_stack("torchtitan-2026").loss, chunks=float(chunks))}


def _devices(entries: Entries) -> int | None:
    """Number of the launcher's processes; None if it is not stated."""
    processes, nodes = entries.get("nproc_per_node", "NGPU"), entries.get("nnodes")
    entries.get("MODULE", "CONFIG")
    if not config_file(entries.source.entries):
        entries.get(*CONFIG_FILES)
    if not str(processes).isdigit():
        return None
    return int(processes) * (int(nodes) if str(nodes).isdigit() else 1)


def _unsupported_findings(entries: Entries) -> Iterator[Diagnostic]:
    """Findings on entries that no setting expresses, and on lines of Python that could not be evaluated."""
    for name, (usual, effect) in UNPRICED_ENTRIES.items():
        value = entries.get(name)
        if value is not None and value not in usual:
            yield unsupported_entry(entries.source, name, effect)
    if (file := config_file(entries.source.entries)) and not find_file(entries.source.path, file):
        name = entries.present_name(*CONFIG_FILES)
        text = f"{name} {file} is not found from the script's folder up: TorchTitan's defaults are assumed"
        yield finding("FMT-011", text, "check the script where that file is", entries.source, name)
    option = entries.get(OPTION)
    if str(option or "2") not in ("1", "2", "op"):
        message = f"{OPTION} is {option}: layers in between are saved"
        yield finding("FMT-002", message, "the price is that of every second", entries.source, OPTION)
    for name in [name for name in entries.source.entries if name.startswith(NOTE)]:
        yield finding("FMT-011", f"{name}: {entries.get(name)}", "write it as plain assignments", entries.source, name)


FORMAT = Format(
    name="torchtitan", title="TorchTitan 0.3's configuration", recognises=recognises, read=read, write=write,
    opened=normalized, ignores=IGNORED_ENTRIES, listed="torchtitan",
)  # fmt: skip
