"""Training script with Lightning's Trainer: ModelParallelStrategy (FSDP2, tensor parallelism) or DDP; others are only read.

A script is parsed, never run: keyword arguments of the relevant calls are read, with constants substituted. Defaults are those
of lightning 2.6.6: pytorch/strategies/{ddp,fsdp,deepspeed,model_parallel,parallel}.py (only DDP skips the reduction of
micro-batches before the last), pytorch/plugins/precision/fsdp.py (FSDP reduces in the compute dtype).
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.formats.config_entries import Entries
from strategist.formats.deepspeed_part import deepspeed_of, deepspeed_with
from strategist.formats.finding_codes import finding
from strategist.formats.format import Format
from strategist.formats.lightning_export import write
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.python_tree import python_tree
from strategist.formats.source import Entry, Source, leaves

STRATEGIES = ("DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
CALLS = ("Trainer", *STRATEGIES, "fully_shard", "MixedPrecisionPolicy", "MixedPrecision")
PRESENT = {
    "CPUOffloadPolicy": "CPUOffloadPolicy", "checkpoint_wrapper": "recompute", "apply_activation_checkpointing": "recompute",
    "gradient_checkpointing_enable": "recompute", "checkpoint": "recompute", "compile": "compile",
    "SequenceParallel": "SequenceParallel", "loss_parallel": "loss_parallel",
}  # fmt: skip
"""Calls whose presence alone states a setting."""

PRECISIONS = {
    "32": "fp32", "32-true": "fp32", "64": "fp32", "64-true": "fp32", "16": "fp16", "16-mixed": "fp16", "16-true": "fp16",
    "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16-true", "transformer-engine": "bf16",
    "transformer-engine-float16": "fp16",
}  # fmt: skip
SHARDINGS = {
    "FULL_SHARD": (True, False), "SHARD_GRAD_OP": (False, False), "NO_SHARD": (None, False),
    "HYBRID_SHARD": (True, True), "_HYBRID_SHARD_ZERO2": (False, True),
}  # fmt: skip
"""FSDP's strategies: whether parameters are resharded after forward (None: nothing is sharded), and whether only within a node."""

HOOKS = {"fp16_compress_hook": "fp16", "bf16_compress_hook": "bf16", "powerSGD_hook": "powersgd"}
OPEN = "auto"
"""Value of an argument that is decided at run time, by the script's own arguments or by Lightning."""

CHECKPOINTING = ("FSDPStrategy.activation_checkpointing_policy", "FSDPStrategy.activation_checkpointing")

DECIDED = (
    "Trainer.strategy", "Trainer.precision", "Trainer.accumulate_grad_batches", "FSDPStrategy.sharding_strategy",
    *CHECKPOINTING, "DeepSpeedStrategy.stage", "DeepSpeedStrategy.config", "ModelParallelStrategy.data_parallel_size",
    "ModelParallelStrategy.tensor_parallel_size",
)  # fmt: skip
"""Arguments that a price needs and that a script may leave open."""

SETTING_ENTRIES = {
    "precision": "Trainer.precision", "dp_shard": "ModelParallelStrategy.data_parallel_size", "devices": "Trainer.devices",
    "tp": "ModelParallelStrategy.tensor_parallel_size", "reshard_after_forward": "fully_shard.reshard_after_forward",
    "micro_batch": "batch_size",
}  # fmt: skip


def recognises(source: Source) -> bool:
    """Whether a source is Python that uses Lightning's Trainer."""
    text = source.text
    return source.language == "python" and "Trainer(" in text and ("lightning" in text or "from pl" in text)


def read(entries: Entries) -> ParsedConfig:
    """Settings that a script's calls state; its module decides model, sequence length and optimizer."""
    entries.source = source = _calls(entries.source)
    kind = _kind(entries)
    nodes = entries.integer("Trainer.num_nodes") or 1
    devices = _devices(entries)
    found = {"DDPStrategy": _ddp, "FSDPStrategy": _fsdp, "DeepSpeedStrategy": _deepspeed, "ModelParallelStrategy": _mesh}[kind](
        entries
    )
    precision = entries.choice(PRECISIONS, "Trainer.precision") or "fp32"
    if kind == "ModelParallelStrategy" and str(entries.get("MixedPrecisionPolicy.param_dtype")) in ("bfloat16", "float16"):
        precision = {"bfloat16": "bf16", "float16": "fp16"}[str(entries.get("MixedPrecisionPolicy.param_dtype"))]
    settings: dict[str, KnobValue] = {"compile": source.has("compile"), "no_sync": kind == "DDPStrategy"}
    settings["recompute"] = "full" if source.has("recompute") else "none"
    entries.get(*PRESENT.values(), *STRATEGIES)
    settings["reduce_dtype"] = _reduce_dtype(entries, kind, precision)
    if micro := entries.integer("batch_size"):
        settings["micro_batch"] = micro
    return replace(
        found, settings={**settings, **found.settings}, workload={"precision": precision},
        accumulation=entries.integer("Trainer.accumulate_grad_batches") or 1, devices=devices * nodes if devices else None,
        unstated=("optimizer", "train", *(() if micro else ("micro_batch",))), entry_names={**SETTING_ENTRIES, **found.entry_names},
        findings=(*found.findings, *_findings(entries)),
    )  # fmt: skip


def _calls(source: Source) -> Source:
    """The source with keyword arguments of its calls as entries, such as ``Trainer.devices``; the first occurrence counts.

    Raises:
        FileError: it is not Python.
    """
    tree = python_tree(source.text, source.path)
    constants: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            constants.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            constants.setdefault(node.name, ast.Constant(node.name))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    named: dict[str, Entry] = {}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        for name, value, position in _call_entries(call, constants, imported):
            named.setdefault(name, Entry(name=name, value=value, line=position.lineno, column=position.col_offset + 1))
    return replace(source, entries=named)


def _call_entries(call: ast.Call, constants: Mapping[str, ast.expr], imported: set[str]) -> Iterator[tuple[str, Any, ast.expr]]:
    """The entries that a call states: name, value and position."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    if name in PRESENT and not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("re", "self")):
        yield PRESENT[name], True, call
    if name in STRATEGIES:
        yield name, True, call
    for keyword in call.keywords:
        if keyword.arg is not None and (name in CALLS or keyword.arg == "batch_size"):
            entry_name = keyword.arg if keyword.arg == "batch_size" else f"{name}.{keyword.arg}"
            for inner, value in leaves(entry_name, _value(keyword.value, constants, imported)):
                yield inner, value, keyword.value


def _value(node: ast.expr, constants: Mapping[str, ast.expr], imported: set[str], depth: int = 0) -> Any:
    """A literal; the last part of an imported name (``torch.bfloat16``); the class of a new object, with brackets; else OPEN."""
    if isinstance(node, ast.Name) and node.id in imported:
        return node.id
    if isinstance(node, ast.Name):
        known = constants.get(node.id)
        return _value(known, constants, imported, depth + 1) if known is not None and depth < 8 else OPEN
    if isinstance(node, ast.Attribute):
        root = ast.unparse(node).partition(".")[0]
        return node.attr if root in imported else OPEN
    if isinstance(node, ast.Call):
        class_name = ast.unparse(node.func).rpartition(".")[2]
        return f"{class_name}()" if class_name.endswith(("Strategy", "Policy", "Offload", "Precision")) else OPEN
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ast.unparse(node) if isinstance(node, ast.Set | ast.List | ast.Lambda) else OPEN


def _kind(entries: Entries) -> str:
    """The strategy: an object, or a name of Lightning's registry (pytorch/strategies/*: ``register_strategies``)."""
    value = entries.get("Trainer.strategy")
    text = str(value or "auto").removesuffix("()")
    known = {**dict.fromkeys(("auto", "SingleDeviceStrategy", "ddp"), "DDPStrategy"), "fsdp": "FSDPStrategy"}
    known["deepspeed"] = "DeepSpeedStrategy"
    strategy_call = next((name for name in STRATEGIES if entries.source.has(name)), None)
    found = text if text in STRATEGIES else known.get(text.partition("_")[0])
    if found is None and (strategy_call is None or (isinstance(value, str) and value in ("dp", "tpu", "xla"))):
        words = ", ".join((*STRATEGIES, "ddp", "fsdp", "deepspeed"))
        raise entries.source.error("Trainer.strategy", f"Trainer.strategy is {value}: one of {words} is needed")
    return found or str(strategy_call)


def _strategy_name(entries: Entries) -> str:
    return str(entries.get("Trainer.strategy") or "")


def _devices(entries: Entries) -> int | None:
    """Devices per node; None if Lightning counts them."""
    value = entries.get("Trainer.devices")
    if isinstance(value, list):
        return len(value)
    return None if value is None or value in (-1, "-1", "auto") or not str(value).isdigit() else entries.integer("Trainer.devices")


def _ddp(entries: Entries) -> ParsedConfig:
    options = {name: bool(entries.flag(f"DDPStrategy.{name}")) for name in ("static_graph", "gradient_as_bucket_view")}
    unused = entries.flag("DDPStrategy.find_unused_parameters") or "find_unused_parameters_true" in _strategy_name(entries)
    hook = HOOKS.get(str(entries.get("DDPStrategy.ddp_comm_hook")), "none")
    settings: dict[str, KnobValue] = {"dp_shard": 1, "find_unused_parameters": unused, "comm_hook": hook, **options}
    return ParsedConfig(
        settings=settings | {"bucket_cap_mb": entries.integer("DDPStrategy.bucket_cap_mb") or 25}, spare="dp_replicate"
    )


def _fsdp(entries: Entries) -> ParsedConfig:
    """Settings of FSDP1."""
    resharded, in_node = entries.choice(SHARDINGS, "FSDPStrategy.sharding_strategy") or (True, False)
    offloads = entries.get("FSDPStrategy.cpu_offload") not in (None, False) or "cpu_offload" in _strategy_name(entries)
    settings: dict[str, KnobValue] = {"reshard_after_forward": resharded is not False, "offload": "all" if offloads else "none"}
    if entries.get(*CHECKPOINTING) not in (None, [], ()):
        settings["recompute"] = "full"
    mesh = entries.get("FSDPStrategy.device_mesh")
    spare = "dp_shard"
    if isinstance(mesh, tuple) and len(mesh) == 2:
        spare, settings["dp_replicate"], settings["dp_shard"] = "", int(mesh[0]), int(mesh[1])
    elif resharded is None:
        spare, settings["dp_shard"] = "dp_replicate", 1
    elif in_node and (devices := _devices(entries)):
        spare, settings["dp_shard"] = "dp_replicate", devices
    return ParsedConfig(settings=settings, spare=spare)


def _deepspeed(entries: Entries) -> ParsedConfig:
    """Settings of DeepSpeed, from the strategy's arguments or from a DeepSpeed configuration."""
    precision = entries.choice(PRECISIONS, "Trainer.precision") or "fp32"
    if part := deepspeed_of(entries, "DeepSpeedStrategy.config", precision):
        settings = {name: value for name, value in part.settings.items() if name != "micro_batch"}  # batches are the Trainer's
        return replace(part, settings=settings, workload={})
    word = _strategy_name(entries)
    stage = next((number for number in (1, 2, 3) if f"stage_{number}" in word), None)
    section = {
        "stage": entries.integer("DeepSpeedStrategy.stage", minimum=0) or stage or 2,
        "offload_optimizer.device": "cpu" if entries.flag("DeepSpeedStrategy.offload_optimizer") or "offload" in word else None,
        "offload_param.device": "cpu" if entries.flag("DeepSpeedStrategy.offload_parameters") or "3_offload" in word else None,
        "offload_optimizer.pin_memory": bool(entries.flag("DeepSpeedStrategy.pin_memory")),
    }
    return deepspeed_with({f"zero_optimization.{name}": value for name, value in section.items()}, precision)


def _mesh(entries: Entries) -> ParsedConfig:
    """Settings of FSDP2 and tensor parallelism, as the module's ``configure_model`` applies them."""
    nodes, devices, source = entries.integer("Trainer.num_nodes") or 1, _devices(entries), entries.source
    name = "ModelParallelStrategy"
    settings: dict[str, KnobValue] = {"tp": entries.integer(f"{name}.tensor_parallel_size") or devices or 1}
    settings["dp_shard"] = entries.integer(f"{name}.data_parallel_size") or nodes
    value = entries.get("fully_shard.reshard_after_forward")
    if isinstance(value, int) and not isinstance(value, bool):
        settings |= {"reshard_after_forward": "subgroup", "reshard_group_size": value}
    elif value is not None:
        settings["reshard_after_forward"] = bool(entries.flag("fully_shard.reshard_after_forward"))
    settings["offload"] = "all" if source.has("CPUOffloadPolicy") else "none"
    if settings["tp"] != 1:
        settings |= {"sequence_parallel": source.has("SequenceParallel"), "loss_parallel": source.has("loss_parallel")}
    return ParsedConfig(settings=settings)


def _reduce_dtype(entries: Entries, kind: str, precision: str) -> str:
    """Dtype in which gradients are reduced."""
    value = entries.get("MixedPrecisionPolicy.reduce_dtype", "MixedPrecision.reduce_dtype")
    if value is not None:
        return "fp32" if str(value) == "float32" else "bf16"
    return "fp32" if (kind == "DDPStrategy" and precision != "bf16-true") or precision == "fp32" else "bf16"


def _findings(entries: Entries) -> Iterator[Diagnostic]:
    source = entries.source
    for name in DECIDED:
        if (entry := source.entries.get(name)) and entry.value == OPEN:
            text = f"{name} is decided where the script runs: what is usual is assumed"
            yield finding("FMT-011", text, "write it down", source, name)
    if entries.get("Trainer.precision") == "16-true":
        text = "Trainer.precision 16-true keeps everything in fp16, and is priced as 16-mixed"
        yield finding("FMT-002", text, "measure it", source, "Trainer.precision")
    if str(entries.get("Trainer.precision")).startswith("transformer-engine"):
        text = "Trainer.precision: Transformer Engine multiplies in fp8, which is not priced"
        yield finding("FMT-002", text, "measure it", source, "Trainer.precision")
    if entries.get("DDPStrategy.model_averaging_period") is not None:
        text = "DDPStrategy.model_averaging_period: replicas are averaged from time to time"
        yield finding("FMT-002", text, "the price is that of every step", source, "DDPStrategy.model_averaging_period")


IGNORED_ENTRIES = (
    "Trainer.accelerator", "Trainer.logger", "Trainer.callbacks", "Trainer.*_epochs", "Trainer.*_steps*", "Trainer.max_time",
    "Trainer.limit_*", "Trainer.val_*", "Trainer.check_*", "Trainer.enable_*", "Trainer.gradient_clip_*",
    "Trainer.deterministic", "Trainer.benchmark", "Trainer.inference_mode", "Trainer.use_distributed_sampler",
    "Trainer.profiler", "Trainer.detect_anomaly", "Trainer.barebones", "Trainer.plugins", "Trainer.sync_batchnorm",
    "Trainer.reload_*", "Trainer.default_root_dir", "Trainer.model_registry", "Trainer.fast_dev_run",
    "Trainer.overfit_batches", "*Strategy.process_group_backend", "*Strategy.timeout", "*Strategy.state_dict_type",
    "*Strategy.save_distributed_checkpoint", "*Strategy.start_method", "*Strategy.auto_wrap_policy", "*Strategy.logging_*",
    "fully_shard.*", "MixedPrecision*", "DDPStrategy.ddp_comm_*", "FSDPStrategy.mixed_precision",
    "FSDPStrategy.use_orig_params", "FSDPStrategy.limit_all_gathers", "DeepSpeedStrategy.load_full_weights",
)  # fmt: skip

FORMAT = Format(
    name="lightning", title="A training script with Lightning's Trainer, 2.6", recognises=recognises, read=read,
    write=write, ignores=IGNORED_ENTRIES, listed="lightning",
)  # fmt: skip
