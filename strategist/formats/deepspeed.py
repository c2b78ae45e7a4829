"""DeepSpeed's JSON configuration: ZeRO stages 0 to 3 with offload, and tensor parallelism by AutoTP.

ZeRO stages in terms of FSDP2 (arXiv 1910.02054, section 5): stages 1 and 2 keep gathered parameters; stages 0 and 1 reduce
gradients after the last micro-batch. hpZ is arXiv 2306.10209, section 3.2. Defaults are those of 0.19.8: runtime/config.py
(batches, ``_set_batch_related_parameters``), runtime/engine.py (dtypes, ``get_data_types`` and ``communication_data_type``;
optimizers, ``_configure_basic_optimizer``; reductions, ``allreduce_gradients``), runtime/zero/{config,offload_config}.py and
runtime/tensor_parallel/config.py. Batch sizes count all ranks, AutoTP ranks with the same sequences included.
"""

from collections.abc import Iterator
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.formats.config_entries import Entries
from strategist.formats.deepspeed_export import ADDED, CHECKPOINTING, STAGE, TENSOR, ZERO, write
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import Format
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source

MICRO_BATCH = "train_micro_batch_size_per_gpu"
OPTIMIZERS = {"adamw": "adamw", "adam": "adamw", "sgd": "sgd", "muon": "muon"}
OTHER_OPTIMIZERS = ("lamb", "lion", "adagrad", "muadam", "muadamw", "musgd", "rmsprop", "adadelta", "adafactor", "nadam", "radam")
"""Optimizers of DeepSpeed or torch that have no price here."""

REMOVED_OPTIMIZERS = ("onebitadam", "onebitlamb", "zerooneadam")

DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16", "fp16", "float16", "half", "torch.float16"), "bf16"),
}
"""Dtypes in which gradients are reduced; fp16 and bf16 have the same price."""

AUTOCAST = {
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
}

UNPRICED_ENTRIES = {
    f"{ZERO}.zero_quantized_weights": "weights are gathered in int8",
    f"{ZERO}.zero_quantized_gradients": "gradients are reduced in int4",
    f"{ZERO}.zero_quantized_nontrainable_weights": "frozen weights are gathered in int8",
    f"{ZERO}.offload_optimizer.super_offload": "the optimizer's states travel with their layers",
    f"{ZERO}.zenflow": "part of the update is put off to later steps",
    "compile.deepcompile": "DeepCompile chooses the order of gathers",
    "activation_checkpointing.partition_activations": "inputs of layers are cut over the ranks of tensor parallelism",
    "data_efficiency.enabled": "sequences and layers are left out",
    "fp16.fp16_master_weights_and_grads": "the optimizer's copy is kept in fp16",
    "hybrid_engine.enabled": "the engine also generates",
    "expert_parallel.async_split_plan": "experts start before all tokens have arrived",
}
"""Entries that change a step in a way that no setting expresses, with their effect."""

REMOVED = {
    "nebula": "checkpoints of Nebula", "compression_training": "compression", "amp": "Apex AMP", "elasticity": "elastic training",
    "quantize_training": "mixture of quantization", "sparse_gradients": "sparse gradients", "eigenvalue": "mixture of quantization",
    "sparse_attention": "sparse attention", "graph_harvesting": "graph harvesting", "curriculum_learning": "the old curriculum",
    "progressive_layer_drop": "layer dropping", f"{ZERO}.mics_shard_size": "MiCS", f"{ZERO}.zeropp_loco_param": "LoCo",
    f"{ZERO}.mics_hierarchical_params_gather": "MiCS",
}  # fmt: skip
"""Names that 0.19 rejects, with their former purpose (runtime/config.py: ``_reject_removed_config_keys``)."""

SETTING_ENTRIES = {
    "reshard_after_forward": STAGE,
    "dp_shard": STAGE,
    "dp_replicate": STAGE,
    "no_sync": STAGE,
    "reshard_group_size": f"{ZERO}.zero_hpz_partition_size",
    "offload": f"{ZERO}.offload_optimizer.device",
    "pin_memory": f"{ZERO}.offload_optimizer.pin_memory",
    "tp": f"{TENSOR}.autotp_size",
    "loss_parallel": f"{TENSOR}.vocab_parallel_lm_head",
    "ep": "expert_parallel.autoep_size",
    "micro_batch": MICRO_BATCH,
    "global_batch": "train_batch_size",
    "precision": "bf16.enabled",
    "reduce_dtype": "data_types.grad_accum_dtype",
    "optimizer": "optimizer.type",
}


def recognises(source: Source) -> bool:
    """Whether a source is DeepSpeed's: JSON with any name that only DeepSpeed has."""
    return source.language == "json" and any(source.has(name) for name in (ZERO, MICRO_BATCH, "train_batch_size"))


def read(entries: Entries) -> ParsedConfig:
    """Settings that a configuration states; the program decides model, sequence length, devices and recomputation."""
    entries.get(*(name for name in entries.source.entries if name.startswith("_")))  # names that serve as comments in JSON
    stage = _stage(entries)
    tp = entries.integer(f"{TENSOR}.autotp_size", minimum=0) or 1
    cp = entries.integer("sequence_parallel_size") or 1
    workload, unstated = _workload(entries, tp)
    settings: dict[str, KnobValue] = {**_sharding(entries, stage), **_offload(entries, stage), "tp": tp, "cp": cp}
    if tp > 1:
        settings["loss_parallel"] = bool(entries.flag(f"{TENSOR}.vocab_parallel_lm_head"))
    if entries.flag("expert_parallel.enabled"):
        settings["ep"] = entries.integer("expert_parallel.autoep_size") or 1
        settings["etp"] = entries.integer("expert_parallel.expert_tensor_parallel_size") or 1
    if micro_batch := entries.integer(MICRO_BATCH):
        settings["micro_batch"] = micro_batch
    settings["recompute"] = "full" if entries.has(CHECKPOINTING) else "none"
    settings["activation_offload"] = bool(entries.flag(f"{CHECKPOINTING}.cpu_checkpointing"))
    settings["reduce_dtype"], accumulation_dtype = _gradient_dtypes(entries, str(workload.get("precision", "bf16")))
    return ParsedConfig(
        settings=settings, workload=workload, accumulation=_accumulation(entries), spare="dp_shard" if stage else "dp_replicate",
        entry_names=SETTING_ENTRIES, unstated=(*unstated, "recompute", "train"),
        stack=_overlap(entries, stage),
        findings=tuple(_findings(entries, stage, str(settings["reduce_dtype"]), accumulation_dtype)),
    )  # fmt: skip


def _stage(entries: Entries) -> int:
    """The ZeRO stage. The old form of the section is true or false (runtime/zero/config.py: ``read_zero_config_deprecated``)."""
    if ZERO in entries.source.entries:
        return int(bool(entries.flag(ZERO)))
    stage = entries.integer(STAGE, minimum=0) or 0
    if stage > 3:
        raise entries.source.error(STAGE, f"{STAGE} is {stage}: a stage from 0 to 3 is needed")
    return stage


def _sharding(entries: Entries, stage: int) -> dict[str, KnobValue]:
    """Settings of a ZeRO stage: whether it reshards, and when it reduces."""
    settings: dict[str, KnobValue] = {"no_sync": stage < 2}
    if stage > 0:
        settings["reshard_after_forward"] = stage == 3
    size = entries.integer(f"{ZERO}.zero_hpz_partition_size", minimum=0)
    if stage == 3 and size and size > 1:
        settings |= {"reshard_after_forward": "subgroup", "reshard_group_size": size}
    return settings


def _overlap(entries: Entries, stage: int) -> dict[str, bool]:
    """Whether reductions of gradients overlap with the backward pass, if the file states it; the default is: in stage 3 only."""
    overlaps = entries.flag(f"{ZERO}.overlap_comm")
    return {} if overlaps is None else {"hides_reductions": overlaps and stage > 0, "hides_resharded_reductions": overlaps}


def _offload(entries: Entries, stage: int) -> dict[str, KnobValue]:
    """Settings of offload to host memory, by current or old names. NVMe, which no setting expresses, counts as host memory."""
    devices = {"cpu": True, "nvme": True, "none": False}
    parameters = entries.choice(devices, f"{ZERO}.offload_param.device")
    optimizer = entries.choice(devices, f"{ZERO}.offload_optimizer.device")
    parameters = bool(parameters or entries.flag(f"{ZERO}.cpu_offload_param")) and stage == 3
    optimizer = bool(optimizer or entries.flag(f"{ZERO}.cpu_offload")) and stage > 0
    pinned = entries.flag(f"{ZERO}.offload_optimizer.pin_memory", f"{ZERO}.offload_param.pin_memory")
    return {"offload": "all" if parameters else "optimizer" if optimizer else "none", "pin_memory": pinned is not False}


def _workload(entries: Entries, ranks_per_sequence: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Precision, optimizer and global batch; and what the program decides.

    ranks_per_sequence: number of ranks that read the same sequences.
    """
    found: dict[str, Any] = {}
    unstated = []
    types = {name: entries.flag(f"{name}.enabled") for name in ("bf16", "bfloat16", "fp16", "torch_autocast")}
    if types["torch_autocast"]:
        found["precision"] = entries.choice(AUTOCAST, "torch_autocast.dtype") or "bf16"
    elif types["bf16"] or types["bfloat16"]:
        pure = entries.flag("bf16.bf16_master_weights_and_grads") and entries.flag("bf16.bf16_optimizer_states")
        found["precision"] = "bf16-true" if pure else "bf16"
    elif types["fp16"]:
        found["precision"] = "fp16"
    elif any(entries.source.entries[name].value == "auto" for name in HALVES if name in entries.source.entries):
        unstated.append("precision")
    else:
        found["precision"] = "fp32"
    if name := _optimizer(entries):
        found["optimizer"] = OPTIMIZERS.get(name, "adamw")
    if batch_size := entries.integer("train_batch_size"):
        if batch_size % ranks_per_sequence:
            law = f"it must divide by {ranks_per_sequence}"
            text = f"train_batch_size {batch_size} counts ranks that read the same sequences, {ranks_per_sequence} each: {law}"
            raise entries.source.error("train_batch_size", text)
        found["global_batch"] = batch_size // ranks_per_sequence
    return found, (*unstated, *(() if name else ("optimizer",)))


def _optimizer(entries: Entries) -> str:
    """The optimizer's name in lower case; empty if the program brings its own."""
    name = str(entries.get("optimizer.type") or "").lower()
    known = (*OPTIMIZERS, *OTHER_OPTIMIZERS)
    if name and name not in (*known, *REMOVED_OPTIMIZERS):
        message = f"optimizer.type is {entries.get('optimizer.type')}: one of {', '.join(known)} is needed"
        raise entries.source.error("optimizer.type", message)
    return name


HALVES = ("bf16.enabled", "bfloat16.enabled", "fp16.enabled")


def _accumulation(entries: Entries) -> int | None:
    """Gradient accumulation: 1 if only the micro-batch size is stated; None if transformers' trainer decides it (``auto``)."""
    steps = entries.integer("gradient_accumulation_steps")
    alone = not entries.has("train_batch_size") and not entries.has("gradient_accumulation_steps")
    return 1 if alone and entries.get(MICRO_BATCH) is not None else steps


def _gradient_dtypes(entries: Entries, precision: str) -> tuple[str, str]:
    """Dtypes in which gradients are reduced and accumulated; the default of both is the parameters' dtype."""
    default = "fp32" if precision == "fp32" else "bf16"
    reduce_dtype = entries.choice(DTYPES, "communication_data_type") or default
    return reduce_dtype, entries.choice(DTYPES, "data_types.grad_accum_dtype") or default


def _findings(entries: Entries, stage: int, reduce_dtype: str, accumulation_dtype: str) -> Iterator[Diagnostic]:
    source = entries.source
    for name, effect in UNPRICED_ENTRIES.items():
        if entries.get(name) is True or (name.endswith("zenflow") and entries.has(name)):
            yield unsupported_entry(source, name, effect)
    for name, removed_feature in REMOVED.items():
        if entries.has(name):
            known = [entry for entry in source.entries if entry == name or entry.startswith(f"{name}.")]
            entries.get(*known)
            message = f"{name} is refused since 0.19: {removed_feature} has been removed"
            yield finding("FMT-004", message, "remove it", source, known[0])
    for part in ("offload_optimizer", "offload_param"):
        if entries.get(f"{ZERO}.{part}.device") == "nvme":
            message = f"{ZERO}.{part}.device is nvme, and is priced as cpu"
            yield finding("FMT-002", message, "a disk is slower than host memory", source, f"{ZERO}.{part}.device")
    if entries.get(f"{ZERO}.offload_optimizer.ratio") not in (None, 1):
        name = f"{ZERO}.offload_optimizer.ratio"
        message = f"{name}: part of the optimizer stays on the device"
        yield finding("FMT-002", message, "priced as if all were offloaded", source, name)
    if entries.has("sequence_parallel_size") and entries.get("sequence_parallel_size") != 1:
        text = "sequence_parallel_size: Ulysses exchanges heads, and is priced as cp, which passes keys and values round"
        yield finding("FMT-002", text, "measure it", source, "sequence_parallel_size")
    if (name := _optimizer(entries)) in OTHER_OPTIMIZERS:
        message = f"optimizer.type {name} is priced as AdamW"
        yield finding("FMT-002", message, "its states may be fewer or more", source, "optimizer.type")
    if name in REMOVED_OPTIMIZERS:
        yield finding("FMT-004", f"optimizer.type {name} is none since 0.19", "choose Adam or Lamb", source, "optimizer.type")
    if entries.flag("bf16.enabled", "bfloat16.enabled") and entries.flag("fp16.enabled"):
        yield finding("FMT-004", "bf16 and fp16 are both enabled", "enable one", source, "fp16.enabled")
    yield from _dtype_findings(entries, stage, reduce_dtype, accumulation_dtype)


def _dtype_findings(entries: Entries, stage: int, reduce_dtype: str, accumulation_dtype: str) -> Iterator[Diagnostic]:
    """Findings on illegal or unpriced dtypes of gradients (runtime/engine.py: ``_do_optimizer_sanity_check``)."""
    name = "data_types.grad_accum_dtype"
    half = any(entries.flag(entry) for entry in HALVES)
    if stage == 0 and half and accumulation_dtype == "fp32":
        yield finding("FMT-004", f"{name} fp32 needs a stage from 1 on", f"remove it, or set {STAGE} to 1", entries.source, name)
    elif accumulation_dtype != reduce_dtype:
        message = f"gradients are reduced in {reduce_dtype}, accumulated in {accumulation_dtype}, and priced as {reduce_dtype}"
        entry = name if entries.has(name) else "communication_data_type"
        yield finding("FMT-002", message, "give both the same type", entries.source, entry)


IGNORED_ENTRIES = (
    f"{CHECKPOINTING}.*", "autotuning.*", "bf16.*", "bfloat16.*", "checkpoint.*", "comet.*", "comms_logger.*", "csv_monitor.*",
    "data_efficiency.*", "data_parallel_size", "data_types.*", "dataloader_drop_last", "disable_allgather", "dump_state",
    "flops_profiler.*", "fp16.*", "gradient_clipping", "gradient_predivide_factor", "gradient_allreduce_op", "log_level",
    "memory_breakdown", "monitor_config.*", "optimizer.legacy_fusion", "optimizer.params.*", "prescale_gradients", "scheduler.*",
    "steps_per_print", "tensorboard.*", "timers.*", "torch_autocast.*", "vocabulary_size", "wall_clock_breakdown", "wandb.*",
    *ADDED, f"{ZERO}.cpu_offload_use_pin_memory", f"{ZERO}.elastic_checkpoint", f"{ZERO}.enable_sanity_checks",
    f"{ZERO}.ignore_unused_parameters", f"{ZERO}.legacy_stage1", f"{ZERO}.load_from_fp32_weights",
    f"{ZERO}.log_trace_cache_warnings", f"{ZERO}.zenflow.*", f"{ZERO}.gather_16bit_weights_on_model_save",
    f"{ZERO}.stage3_gather_16bit_weights_on_model_save", f"{ZERO}.stage3_gather_fp16_weights_on_model_save",
)  # fmt: skip

FORMAT = Format(
    name="deepspeed", title="DeepSpeed's JSON configuration, 0.19", recognises=recognises, read=read,
    write=write, ignores=IGNORED_ENTRIES, listed="deepspeed",
)  # fmt: skip
