"""Config file of accelerate 1.15: FSDP 1 or 2, DDP or DeepSpeed, with mixed precision and parallel degrees.

Defaults are those of accelerate 1.15.0: commands/launch.py (values that the file may hold), utils/dataclasses.py
(FullyShardedDataParallelPlugin, DeepSpeedPlugin), parallelism_config.py, utils/fsdp_utils.py. FSDP reduces gradients in the
compute dtype (``set_mixed_precision``). Accumulated gradients are reduced after the last micro-batch (``Accelerator.no_sync``),
except with ZeRO-2 and 3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.formats.accelerate_export import DEGREES, DYNAMO, FSDP, PARALLELISM, ZERO, write
from strategist.formats.config_entries import Entries
from strategist.formats.deepspeed_part import DEFAULT_STAGE, deepspeed_of, deepspeed_with
from strategist.formats.finding_codes import finding
from strategist.formats.format import Format
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source

SEVERAL = tuple(f"MULTI_{kind}" for kind in ("GPU", "CPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU", "NEURON"))
KINDS = {"NO": "replicas", "FSDP": "fsdp", "DEEPSPEED": "deepspeed", "MEGATRON_LM": "megatron"} | dict.fromkeys(SEVERAL, "replicas")
PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
STRATEGIES = {
    "FULL_SHARD": (True, False), "SHARD_GRAD_OP": (False, False), "NO_SHARD": (None, False),
    "HYBRID_SHARD": (True, True), "HYBRID_SHARD_ZERO2": (False, True),
}  # fmt: skip
"""FSDP1's strategies: whether parameters are resharded after forward (None: nothing is sharded), and whether only within a node."""

STRATEGIES |= {str(number): STRATEGIES[name] for number, name in enumerate(tuple(STRATEGIES), 1)}
MEGATRON = "megatron_lm_config.megatron_lm"


def recognises(source: Source) -> bool:
    """Whether a source is accelerate's: only accelerate calls the kind of parallelism ``distributed_type``."""
    return source.language in ("yaml", "json") and source.has("distributed_type")


def read(entries: Entries) -> ParsedConfig:
    """Settings that a file states; the program decides model, sequence length, batches and optimizer."""
    kind = entries.choice(KINDS, "distributed_type") or "replicas"
    precision = _precision(entries)
    unstated = ["optimizer", "train", *(("precision",) if entries.get("mixed_precision") in (None, False, "no") else ())]
    settings: dict[str, KnobValue] = {"reduce_dtype": "fp32", "no_sync": True}
    found = ParsedConfig(entry_names=SETTING_ENTRIES)
    if kind == "fsdp":
        settings["reduce_dtype"] = "fp32" if precision == "fp32" else "bf16"
        found = _fsdp(entries)
    elif kind == "deepspeed":
        found = _deepspeed(entries, precision)
    elif kind == "megatron":
        found = _megatron(entries)
    else:
        found = replace(found, spare="dp_replicate", settings={"dp_shard": 1}, unstated=("recompute",))
    settings |= {**found.settings, **(_compiled(entries) if kind != "deepspeed" else {})}
    if entries.get("mixed_precision") == "fp8":
        settings["float8"] = "tensorwise"
    devices = entries.integer("num_processes", minimum=-1)
    devices = 1 if entries.get("distributed_type") == "NO" else devices
    unstated += (name for name in (*found.unstated, "micro_batch") if name not in settings or name == "recompute")
    return replace(
        found, settings=settings, workload={"precision": precision, **found.workload}, unstated=tuple(dict.fromkeys(unstated)),
        devices=devices if devices and devices > 0 else None,
        findings=(*found.findings, *_findings(entries)),
    )  # fmt: skip


SETTING_ENTRIES = {
    "precision": "mixed_precision",
    "reduce_dtype": "mixed_precision",
    "reshard_after_forward": f"{FSDP}_reshard_after_forward",
    "offload": f"{FSDP}_offload_params",
    "recompute": f"{FSDP}_activation_checkpointing",
    "activation_offload": f"{FSDP}_activation_checkpointing_offload",
    **{name: f"{PARALLELISM}_{entry}" for name, entry in DEGREES.items()},
    "cp_rotate": f"{PARALLELISM}_cp_comm_strategy",
    "compile": f"{DYNAMO}_backend",
    "fullgraph": f"{DYNAMO}_use_fullgraph",
    "devices": "num_processes",
}


def _precision(entries: Entries) -> str:
    """Mixed precision, from the current or the older entry; fp32 without either, because the model's own dtype is unknown here."""
    if entries.flag("fp16"):
        return "fp16"
    value = entries.get("mixed_precision")
    return "fp32" if value is False else entries.choice(PRECISIONS, "mixed_precision") or "fp32"


def _both_names(name: str) -> tuple[str, str]:
    """Both names of an entry of FSDP's section: with the prefix ``fsdp_`` and without."""
    return f"{FSDP}_{name}", f"{FSDP.removesuffix('fsdp')}{name}"


def _fsdp(entries: Entries) -> ParsedConfig:
    """Settings of FSDP, with the degrees of its device mesh."""
    version = entries.integer(*_both_names("version")) or 1
    settings: dict[str, KnobValue] = {
        "offload": "all" if entries.flag(*_both_names("offload_params")) else "none",
        "recompute": "full" if entries.flag(*_both_names("activation_checkpointing")) else "none",
        "activation_offload": bool(entries.flag(*_both_names("activation_checkpointing_offload"))),
    }
    findings = list(_wrap_policy_findings(entries))
    if version == 2:
        settings["reshard_after_forward"] = entries.flag(*_both_names("reshard_after_forward")) is not False
    else:
        settings |= _version_1_sharding(entries, findings)
    spare = "dp_replicate" if "dp_shard" in settings else "dp_shard"
    if entries.has("parallelism_config"):
        spare, settings = "", settings | _mesh(entries)
        if version == 1:
            message = "parallelism_config needs fsdp_version 2"
            findings.append(finding("FMT-004", message, "set fsdp_version to 2", entries.source, f"{PARALLELISM}_tp_size"))
    return ParsedConfig(settings=settings, spare=spare, entry_names=SETTING_ENTRIES, findings=tuple(findings))


def _version_1_sharding(entries: Entries, findings: list[Diagnostic]) -> dict[str, KnobValue]:
    """Resharding and the ranks that share parameters, by FSDP1's strategy; no ``dp_shard`` if all ranks do."""
    resharded, in_node = entries.choice(STRATEGIES, *_both_names("sharding_strategy")) or (True, False)
    settings: dict[str, KnobValue] = {"reshard_after_forward": resharded is not False}
    processes, nodes = entries.integer("num_processes", minimum=-1) or 0, entries.integer("num_machines") or 1
    if resharded is None:
        settings["dp_shard"] = 1
    elif in_node and processes > 0:
        settings["dp_shard"] = max(1, processes // nodes)
    elif in_node:
        message = "num_processes is not stated, so the size of a node is unknown: all ranks are priced as one group"
        findings.append(finding("FMT-003", message, "give num_processes", entries.source))
    return settings


def _mesh(entries: Entries) -> dict[str, KnobValue]:
    """Degrees and the exchange of context parallelism, from ``parallelism_config``."""
    degrees = {name: entries.integer(f"{PARALLELISM}_{entry}") or 1 for name, entry in DEGREES.items()}
    degrees["cp"] = max(entries.integer(f"{PARALLELISM}_sp_size") or 1, degrees["cp"])
    rotations = {name: name for name in ("allgather", "alltoall")}
    return {**degrees, "cp_rotate": entries.choice(rotations, f"{PARALLELISM}_cp_comm_strategy") or "allgather"}


def _wrap_policy_findings(entries: Entries) -> Iterator[Diagnostic]:
    """Findings on the auto-wrap policy, the unit of all-gathers; default NO_WRAP (FullyShardedDataParallelPlugin)."""
    names = _both_names("auto_wrap_policy")
    policy = str(entries.get(*names) or "NO_WRAP").upper()
    entry_name = entries.present_name(*names)
    if policy not in ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"):
        known = "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP"
        raise entries.source.error(entry_name, f"{entry_name} is {entries.get(*names)}: {known} is needed")
    if policy == "NO_WRAP":
        message = f"{entry_name} NO_WRAP: all layers are gathered at once"
        yield finding(
            "FMT-002", message, "set TRANSFORMER_BASED_WRAP; the price is that of layer by layer", entries.source, entry_name
        )
    if policy == "SIZE_BASED_WRAP":
        message = f"{entry_name} SIZE_BASED_WRAP: layers are gathered together by size"
        yield finding("FMT-002", message, "the price is that of layer by layer", entries.source, entry_name)


def _deepspeed(entries: Entries, precision: str) -> ParsedConfig:
    """Settings of DeepSpeed, from its own config file or from inline entries, which accelerate's plugin turns into one."""
    if found := deepspeed_of(entries, f"{ZERO}.deepspeed_config_file", precision):
        return replace(found, entry_names={**SETTING_ENTRIES, **found.entry_names})
    stage = entries.integer(f"{ZERO}.zero_stage", minimum=0)
    inline = {
        "zero_optimization.stage": DEFAULT_STAGE if stage is None else stage,
        "zero_optimization.offload_optimizer.device": entries.get(f"{ZERO}.offload_optimizer_device"),
        "zero_optimization.offload_param.device": entries.get(f"{ZERO}.offload_param_device"),
        "gradient_accumulation_steps": entries.integer(f"{ZERO}.gradient_accumulation_steps"),
    }
    entry_names = {**SETTING_ENTRIES, "reshard_after_forward": f"{ZERO}.zero_stage", "offload": f"{ZERO}.offload_optimizer_device"}
    return replace(deepspeed_with(inline, precision), entry_names=entry_names)


def _megatron(entries: Entries) -> ParsedConfig:
    """Settings of Megatron-LM; its kernels are priced as those of transformers."""
    pp = entries.integer(f"{MEGATRON}_pp_degree") or 1
    settings: dict[str, KnobValue] = {
        "tp": entries.integer(f"{MEGATRON}_tp_degree") or 1,
        "pp": pp,
        "cp": entries.integer(f"{MEGATRON}_context_parallel_size") or 1,
        "ep": entries.integer(f"{MEGATRON}_expert_model_parallel_size") or 1,
        "sequence_parallel": bool(entries.flag(f"{MEGATRON}_sequence_parallelism")),
        "recompute": "selective" if entries.flag(f"{MEGATRON}_recompute_activations") else "none",
        "reshard_after_forward": False,
    }
    settings["sequence_parallel"] = bool(settings["sequence_parallel"]) and settings["tp"] != 1
    shards = entries.flag(f"{MEGATRON}_use_distributed_optimizer")
    message = "distributed_type MEGATRON_LM: Megatron-LM's own kernels train"
    kernels_finding = finding("FMT-002", message, "they are priced as those of transformers", entries.source, "distributed_type")
    entry_names = {"tp": f"{MEGATRON}_tp_degree", "pp": f"{MEGATRON}_pp_degree"}
    return ParsedConfig(
        settings=settings, spare="dp_shard" if shards else "dp_replicate", entry_names=entry_names,
        accumulation=entries.integer(f"{MEGATRON}_num_micro_batches"), findings=(kernels_finding,),
    )  # fmt: skip


def _compiled(entries: Entries) -> Mapping[str, Any]:
    """Settings of TorchDynamo; regional compilation (of layers) and whole-model compilation have the same price."""
    backend = str(entries.get(f"{DYNAMO}_backend", "dynamo_config.backend", "dynamo_backend") or "NO").upper()
    graph = entries.flag(f"{DYNAMO}_use_fullgraph", "dynamo_config.use_fullgraph")
    return {"compile": backend != "NO", "fullgraph": bool(graph) and backend != "NO"}


def _compile_findings(entries: Entries) -> Iterator[Diagnostic]:
    """Finding on compilation, which is not passed on to DeepSpeed's ranks (utils/launch.py: ``prepare_deepspeed_cmd_env``)."""
    if entries.get("distributed_type") == "DEEPSPEED" and _compiled(entries)["compile"]:
        message = "dynamo_config: with DeepSpeed the launcher passes nothing of it on, and nothing is compiled"
        yield finding("FMT-002", message, "compile in the training script", entries.source, f"{DYNAMO}_backend")


def _findings(entries: Entries) -> Iterator[Diagnostic]:
    source = entries.source
    for name in (f"{DYNAMO}_mode", "dynamo_config.mode"):
        if entries.get(name) not in (None, "default"):
            yield finding("FMT-002", f"{name} {entries.get(name)}: kernels are tuned, or recorded", "measure it", source, name)
    if entries.get("mixed_precision") == "fp8":
        message = "mixed_precision fp8 is priced as torchao's, with a scale a tensor"
        yield finding("FMT-002", message, "measure it where another library multiplies", source, "mixed_precision")
    for name in (f"{PARALLELISM}_sp_size",):
        if entries.get(name) not in (None, 1):
            yield finding("FMT-002", f"{name}: Ulysses exchanges heads, and is priced as cp", "measure it", source, name)
    for part in ("offload_optimizer", "offload_param"):
        name = f"{ZERO}.{part}_device"
        if entries.get(name) == "nvme":
            yield finding("FMT-002", f"{name} is nvme, and is priced as cpu", "a disk is slower than host memory", source, name)
    yield from _compile_findings(entries)
    if entries.flag("use_cpu"):
        yield finding("FMT-002", "use_cpu: nothing runs on the devices", "set it to false", source, "use_cpu")


IGNORED_ENTRIES = (
    "command_file", "commands", "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "gpu_ids", "machine_rank",
    "main_process_ip", "main_process_port", "main_training_function", "mpirun_config*", "num_machines", "rdzv_backend",
    "same_network", "tpu_*", "fp8_config*", "deepspeed_config", "fsdp_config", "parallelism_config", "dynamo_config",
    "megatron_lm_config",
    f"{DYNAMO}_use_regional_compilation", f"{DYNAMO}_use_dynamic", "dynamo_config.use_dynamic", f"{PARALLELISM}_cp_backend",
    f"{PARALLELISM}_sp_*", f"{ZERO}.gradient_clipping", f"{ZERO}.zero3_init_flag", f"{ZERO}.zero3_save_16bit_model",
    f"{ZERO}.deepspeed_*", f"{ZERO}.offload_*_nvme_path",
    *(name for entry in (
        "cpu_ram_efficient_loading", "state_dict_type", "sync_module_states", "use_orig_params", "transformer_layer_cls_to_wrap",
        "min_num_params",
    ) for name in _both_names(entry)),
)  # fmt: skip

FORMAT = Format(
    name="accelerate", title="The file of accelerate config, 1.15", recognises=recognises, read=read,
    write=write, ignores=IGNORED_ENTRIES, listed="accelerate",
)  # fmt: skip
