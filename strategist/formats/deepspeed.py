"""DeepSpeed's JSON: ZeRO stages 0 to 3 with their offload sections.

What the stages are in words of FSDP2 follows arXiv 1910.02054, section 5: stages 1 and 2 keep gathered parameters, stages 0 and 1
reduce after the last micro-batch. hpZ is arXiv 2306.10209, section 3.2; MiCS is arXiv 2205.00119.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from strategist.contract.environment import environment
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.diagnostic import Diagnostic
from strategist.formats.codes import finding
from strategist.formats.entries import Entries
from strategist.formats.format import File, Format, Written
from strategist.formats.found import Found
from strategist.formats.source import Source
from strategist.formats.text import json_text, script
from strategist.formats.words import about, beside

ZERO = "zero_optimization"
OPTIMIZERS = {"AdamW": "adamw", "Adam": "adamw", "SGD": "sgd", "Muon": "muon"}
TYPES = {"adamw": "AdamW", "sgd": "SGD", "muon": "Muon"}
DTYPES = {"fp32": "fp32", "bf16": "bf16", "fp16": "bf16"}
"""Types in which gradients are reduced; halves weigh alike."""

UNLIKE = {
    f"{ZERO}.zero_quantized_weights": "weights are gathered in int8",
    f"{ZERO}.zero_quantized_gradients": "gradients are reduced in int4",
    f"{ZERO}.zero_quantized_nontrainable_weights": "frozen weights are gathered in int8",
    "compile.deepcompile": "DeepCompile orders gathers by itself",
    "sequence_parallel_size": "Ulysses exchanges heads, which is no ring",
}
"""Entries that change a step in a way that no setting says, with what they do."""

SAID = {
    "reshard_after_forward": f"{ZERO}.stage",
    "dp_shard": f"{ZERO}.mics_shard_size",
    "reshard_group_size": f"{ZERO}.zero_hpz_partition_size",
    "offload": f"{ZERO}.offload_optimizer.device",
    "tp": "tensor_parallel.autotp_size",
    "micro_batch": "train_micro_batch_size_per_gpu",
    "global_batch": "train_batch_size",
    "precision": "bf16.enabled",
    "optimizer": "optimizer.type",
}


def recognises(source: Source) -> bool:
    """Any of its own names is enough."""
    return source.language == "json" and (source.has(ZERO) or source.has("train_micro_batch_size_per_gpu"))


def read(entries: Entries) -> Found:
    """What a configuration says; model, sequences and devices are the program's."""
    stage = entries.whole(f"{ZERO}.stage", least=0) or 0
    workload = _workload(entries)
    settings: dict[str, KnobValue] = {**_zero(entries, stage), **_offload(entries, stage)}
    for name, entry in (("tp", "tensor_parallel.autotp_size"), ("micro_batch", "train_micro_batch_size_per_gpu")):
        if number := entries.whole(entry):
            settings[name] = number
    if entries.has("activation_checkpointing"):
        settings["recompute"] = "full"
        settings["activation_offload"] = bool(entries.flag("activation_checkpointing.cpu_checkpointing"))
    usual = "fp32" if workload["precision"] == "fp32" else "bf16"
    settings["reduce_dtype"] = entries.word(DTYPES, "data_types.grad_accum_dtype", "communication_data_type") or usual
    return Found(
        settings=settings, workload=workload, accumulation=entries.whole("gradient_accumulation_steps"),
        spare="dp_replicate" if stage == 0 or "dp_shard" in settings else "dp_shard", said=SAID, findings=tuple(_unlike(entries)),
    )  # fmt: skip


def _zero(entries: Entries, stage: int) -> dict[str, KnobValue]:
    """How a stage shards."""
    if stage > 3:
        raise entries.source.error(f"{ZERO}.stage", f"{ZERO}.stage is {stage}: a stage from 0 to 3 is needed")
    settings: dict[str, KnobValue] = {"postpone_gradient_sync": stage < 2}
    if stage > 0:
        settings["reshard_after_forward"] = stage == 3
    if stage == 3 and (size := entries.whole(f"{ZERO}.zero_hpz_partition_size", least=0)) and size > 1:
        settings |= {"reshard_after_forward": "subgroup", "reshard_group_size": size}
    if stage == 3 and (size := entries.whole(f"{ZERO}.mics_shard_size", least=-1)) and size > 0:
        settings["dp_shard"] = size
    return settings


def _offload(entries: Entries, stage: int) -> dict[str, KnobValue]:
    """What lies in host memory; NVMe is farther than any setting goes, and told as such by ``_unlike``."""
    places = {"cpu": True, "nvme": True, "none": False}
    parameters = entries.word(places, f"{ZERO}.offload_param.device") and stage == 3
    optimizer = entries.word(places, f"{ZERO}.offload_optimizer.device") and stage > 0
    pinned = entries.flag(f"{ZERO}.offload_optimizer.pin_memory", f"{ZERO}.offload_param.pin_memory")
    return {"offload": "all" if parameters else "optimizer" if optimizer else "none", "pin_memory": bool(pinned)}


def _workload(entries: Entries) -> dict[str, Any]:
    """The arithmetic, the optimizer and the step's sequences."""
    half = "bf16" if entries.flag("bf16.enabled", "bfloat16.enabled") else "fp16" if entries.flag("fp16.enabled") else "fp32"
    found: dict[str, Any] = {"precision": half}
    if optimizer := entries.word(OPTIMIZERS, "optimizer.type"):
        found["optimizer"] = optimizer
    if whole := entries.whole("train_batch_size"):
        found["global_batch"] = whole
    return found


def _unlike(entries: Entries) -> Iterator[Diagnostic]:
    for name, what in UNLIKE.items():
        if entries.get(name) not in (None, False, 1):
            yield finding("FMT-002", f"{name}: {what}", "the price is that of a plan without it", entries.source, name)
    for part in ("offload_optimizer", "offload_param"):
        name = f"{ZERO}.{part}.device"
        if entries.get(name) == "nvme":
            yield finding(
                "FMT-002", f"{name} is nvme, and is priced as cpu", "a disk is slower than host memory", entries.source, name
            )


def write(plan: Plan, reasons: Mapping[str, str]) -> Written:
    """The configuration, and a script that starts a training with it."""
    config = File(name="ds_config.json", text=json_text(_config(plan)))
    command = ("deepspeed", f"--num_nodes={plan.cluster.nodes}", f"--num_gpus={plan.cluster.gpus_per_node}", "train.py")
    yours = "train.py is your training script, which calls deepspeed.initialize"
    lines = (*about(plan), "", *beside(plan, reasons).values(), "", yours)
    arguments = [(("--deepspeed", "--deepspeed_config", config.name), "")]
    start = File(name="train.sh", text=script(command, arguments, about=lines, environment=environment(plan)), runs=True)
    return Written(files=(config, start), command=("bash", start.name))


def _config(plan: Plan) -> dict[str, Any]:
    knobs, workload = plan.candidate.knobs, plan.workload
    config: dict[str, Any] = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": knobs.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
        "zero_optimization": _section(plan),
        "optimizer": {"type": TYPES.get(workload.optimizer, "AdamW"), "params": {"lr": 1e-4}},
    }
    if workload.compute_dtype in ("bf16", "fp16"):
        config[workload.compute_dtype] = {"enabled": True}
        config["data_types"] = {"grad_accum_dtype": knobs.reduce_dtype}
        config["communication_data_type"] = knobs.reduce_dtype
    if plan.candidate.layout.tp > 1:
        config["tensor_parallel"] = {"autotp_size": plan.candidate.layout.tp}
    if knobs.recompute == "full":
        config["activation_checkpointing"] = {"partition_activations": False, "cpu_checkpointing": knobs.activation_offload}
    return config


def _section(plan: Plan) -> dict[str, Any]:
    """The stage, and what it offloads."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    section: dict[str, Any] = {"stage": _stage(plan)}
    if knobs.reshard_after_forward == "subgroup":
        section["zero_hpz_partition_size"] = knobs.reshard_group_size
    if layout.dp_shard > 1 and layout.dp_replicate > 1:
        section["mics_shard_size"] = layout.dp_shard
    where = {"device": "cpu", "pin_memory": plan.candidate.options.pin_memory}
    if knobs.offload in ("optimizer", "all"):
        section["offload_optimizer"] = where
    if knobs.offload == "all":
        section["offload_param"] = where
    return section


def _stage(plan: Plan) -> int:
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    if layout.dp_shard == 1:
        return 0
    if knobs.reshard_after_forward is not False:
        return 3
    return 1 if knobs.postpone_gradient_sync and plan.accumulation > 1 else 2


IGNORES = (
    "activation_checkpointing.*", "autotuning.*", "bf16.*", "checkpoint.*", "comms_logger.*", "communication_data_type",
    "csv_monitor.*", "data_efficiency.*", "data_types.*", "dataloader_drop_last", "disable_allgather", "dump_state",
    "elasticity.*", "flops_profiler.*", "fp16.*", "gradient_clipping", "gradient_predivide_factor", "memory_breakdown",
    "monitor_config.*", "optimizer.legacy_fusion", "optimizer.params.*", "prescale_gradients", "scheduler.*", "seed",
    "steps_per_print", "tensorboard.*", "train_steps", "wall_clock_breakdown", "wandb.*", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "zero_optimization.elastic_checkpoint", "zero_optimization.ignore_unused_parameters",
    "zero_optimization.load_from_fp32_weights", "zero_optimization.round_robin_gradients",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
)  # fmt: skip

FORMAT = Format(
    name="deepspeed", title="DeepSpeed's JSON configuration, 0.19", stack="deepspeed", recognises=recognises, read=read,
    write=write, ignores=IGNORES,
)  # fmt: skip
