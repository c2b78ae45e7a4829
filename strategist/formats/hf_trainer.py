"""TrainingArguments of transformers, from YAML, JSON or a command line: FSDP, DeepSpeed or DDP.

Defaults are those of transformers 5.23.0: training_args.py (values; ``_process_fsdp_args``), trainer.py
(``_build_accelerator_args``; gradients are reduced after the last micro-batch unless accelerate has ``sync_each_batch``;
DeepSpeed decides by itself). FSDP reduces in the compute dtype, and DeepSpeed computes in the dtype of the arguments
(accelerate's ``set_mixed_precision``). Common arguments of scripts besides TrainingArguments (TRL's) are understood as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.formats import trl_accelerate_configs
from strategist.formats.config_entries import Entries
from strategist.formats.deepspeed_part import deepspeed_of
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import Format
from strategist.formats.hf_trainer_export import SYNC, write
from strategist.formats.launcher import PREFIX, LauncherConfig, launcher_config, sharded_by_launcher, with_launcher_entries
from strategist.formats.memory_effects import IMAGE_ENCODER
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.referenced_files import find_file
from strategist.formats.script_arguments import SEQUENCE, WEIGHT_TYPES, TrainingMode, training_findings, training_mode
from strategist.formats.source import Source, load

OPTIMIZERS = {
    "adamw_torch": ("adamw", "foreach"), "adamw_torch_fused": ("adamw", "fused"), "sgd": ("sgd", "foreach"),
    **dict.fromkeys(("adamw_torch_8bit", "adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"), ("adamw8bit", "foreach")),
    "paged_adamw_32bit": ("adamw", "foreach"), "adamw_apex_fused": ("adamw", "fused"), "adamw_hf": ("adamw", "foreach"),
}  # fmt: skip
REMOVED_OPTIMIZERS = ("adamw_hf",)
"""Optimizers of transformers 4 that version 5 does not have."""

OTHERS = (
    "adafactor", "ademamix", "adagrad", "lion", "paged_", "rmsprop", "galore", "lomo", "adalomo", "grokadamw", "schedule_free",
    "apollo", "stable_adamw", "adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_xla", "adamw_torch_npu_fused", "lion_8bit",
)  # fmt: skip
"""Prefixes of the names of optimizers that have no price here."""

STRATEGIES = {"full_shard": True, "shard_grad_op": False, "hybrid_shard": True, "hybrid_shard_zero2": False}
RECOMPUTES = ("activation_checkpointing", "gradient_checkpointing")
MESH = "parallelism_config"
MODEL = ("model_name_or_path", "model_name")
SETTING_ENTRIES = {
    "micro_batch": "per_device_train_batch_size",
    "precision": "bf16",
    "optimizer": "optim",
    "optimizer_kernel": "optim",
    "offload": "fsdp_config.cpu_offload",
    "reshard_after_forward": "fsdp_config.reshard_after_forward",
    "recompute": "activation_checkpointing",
    "activation_offload": "activation_checkpointing_kwargs.offload",
    "compile": "torch_compile",
    "bucket_cap_mb": "ddp_bucket_cap_mb",
    "no_sync": SYNC,
    "checkpoint_interval": "save_steps",
}


def recognises(source: Source) -> bool:
    """Whether a source holds TrainingArguments: only these call the micro-batch ``per_device_train_batch_size``."""
    return source.language in ("yaml", "json", "command") and source.has("per_device_train_batch_size")


def opened(source: Source) -> Source:
    """The arguments with the launcher's entries, and with TRL's defaults if its command starts the trainer."""
    return with_launcher_entries(trl_accelerate_configs.with_defaults(source))


def read(entries: Entries) -> ParsedConfig:
    """Settings that the arguments state; the launch command decides the devices."""
    precision = "bf16" if entries.flag("bf16") else "fp16" if entries.flag("fp16") else ""
    launcher = launcher_config(entries, precision)
    training = training_mode(entries)
    computed = precision or str(launcher.config.workload.get("precision", "fp32"))
    keeps_fp32 = _keeps_fp32(entries, launcher, computed)
    workload, unstated = _workload(entries, _with_weights(entries, computed, training, keeps_fp32), training)
    settings = _settings(entries)
    if part := deepspeed_of(entries, "deepspeed", str(workload["precision"])):
        found = replace(part, settings={**part.settings, "recompute": _recompute(entries)})
    elif entries.enabled("fsdp") and not launcher.shards_first:
        found = _fsdp(entries, str(workload["precision"]))
    else:
        reduced = "bf16" if workload["precision"] == "bf16-true" else "fp32"
        unsharded: dict[str, KnobValue] = {"dp_shard": 1, "reduce_dtype": reduced, "recompute": _recompute(entries)}
        found = sharded_by_launcher(ParsedConfig(settings=unsharded, spare="dp_replicate"), launcher, entries)
    sync = entries.flag(SYNC)
    if "no_sync" not in found.settings:
        settings["no_sync"] = not sync
    model = entries.get(*MODEL)
    return replace(
        found, settings={**settings, **found.settings}, workload={**workload, **found.workload}, unstated=unstated,
        model=model if isinstance(model, str) else None, model_entries=MODEL,
        accumulation=entries.integer("gradient_accumulation_steps") or found.accumulation or 1, devices=launcher.config.devices,
        entry_names={
            **SETTING_ENTRIES, "train": training.entry, "seq_len": entries.present_name(*SEQUENCE),
            **_launcher_entries(launcher, precision), **found.entry_names,
        },
        findings=(
            *found.findings, *_findings(entries, launcher), *training_findings(entries, training),
            *(() if keeps_fp32 else _weight_findings(entries, training)),
        ),
    )  # fmt: skip


def _keeps_fp32(entries: Entries, launcher: LauncherConfig, computed: str) -> bool:
    """Whether fp32 copies are kept of weights that are loaded in 16 bits: by DeepSpeed, by FSDP in mixed precision, never by DDP.

    accelerate 1.15.0 (accelerator.py ``prepare_model``, utils/fsdp_utils.py ``fsdp2_prepare_model``).
    """
    if entries.enabled("deepspeed") or launcher.kind == "DEEPSPEED":
        return True
    return computed != "fp32" and (entries.enabled("fsdp") or launcher.kind == "FSDP")


def _with_weights(entries: Entries, computed: str, training: TrainingMode, keeps_fp32: bool) -> str:
    """The precision, by the type of computing and that in which the script loads the weights."""
    stated = str(entries.get(*WEIGHT_TYPES) or "").removeprefix("torch.")
    if keeps_fp32 or computed == "fp16" or stated not in ("bfloat16", "bf16"):
        return computed
    return "bf16" if training.kind in ("lora", "qlora") else "bf16-true"


def _weight_findings(entries: Entries, training: TrainingMode) -> Iterator[Diagnostic]:
    """A finding on fully trained weights that are loaded in the type in which they are stored."""
    entry = entries.source.entries.get(name := entries.present_name(*WEIGHT_TYPES))
    if entry and entry.value == "auto" and training.kind not in ("lora", "qlora"):
        text = f"{name} auto: weights that are stored in 16 bits are trained in 16 bits; fp32 is priced"
        yield finding("FMT-002", text, "write bfloat16 or float32", entries.source, name)


def _launcher_entries(launcher: LauncherConfig, precision: str) -> dict[str, str]:
    """The launcher's entries that count whatever shards: devices, and precision if the trainer states none."""
    counted = ("devices",) if precision else ("devices", "precision")
    return {name: entry for name, entry in launcher.config.entry_names.items() if name in counted}


def _settings(entries: Entries) -> dict[str, KnobValue]:
    """Settings that do not depend on how parameters are sharded."""
    _, kernel = _optimizer(entries)
    settings: dict[str, KnobValue] = {
        "micro_batch": entries.integer("per_device_train_batch_size", "per_gpu_train_batch_size") or 8,
        "optimizer_kernel": kernel,
        "compile": bool(entries.flag("torch_compile")) or entries.get("torch_compile_backend", "torch_compile_mode") is not None,
        "activation_offload": bool(entries.flag(*(f"{name}_kwargs.offload" for name in RECOMPUTES))),
        "bucket_cap_mb": entries.integer("ddp_bucket_cap_mb") or 25,
        "static_graph": bool(entries.flag("ddp_static_graph")),
        "find_unused_parameters": bool(entries.flag("ddp_find_unused_parameters")),
    }
    share = 0 < (entries.number("save_steps") or 1.0) < 1  # a share of all steps, whose number the file may not state
    settings["checkpoint_interval"] = 500 if share else entries.integer("save_steps") or 500
    return settings


def _recompute(entries: Entries) -> str:
    """Recomputation by the model itself: of all layers or of every second layer."""
    if not entries.flag(*RECOMPUTES):
        return "none"
    return "every_second_layer" if _every_n_layers(entries) == 2 else "full"


def _every_n_layers(entries: Entries) -> int:
    return entries.integer(*(f"{name}_kwargs.every_n_layers" for name in RECOMPUTES)) or 1


def _optimizer(entries: Entries) -> tuple[str, str]:
    """The optimizer and its kernel; ``_findings`` reports an optimizer without a price."""
    name = str(entries.get("optim") or "adamw_torch_fused")
    if name not in OPTIMIZERS and not name.startswith(OTHERS):
        raise entries.source.error(
            "optim", f"optim is {name}: one of {', '.join(OPTIMIZERS)} is needed, or another of transformers'"
        )
    return OPTIMIZERS.get(name, ("adamw", "foreach"))


def _workload(entries: Entries, precision: str, training: TrainingMode) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Precision, optimizer, what is trained; and the fields that the script decides."""
    found: dict[str, Any] = {"precision": precision, "optimizer": _optimizer(entries)[0]}
    unstated: tuple[str, ...] = ("precision",) if precision == "fp32" else ()
    if length := entries.integer(*SEQUENCE):
        found["seq_len"] = length
    if training.kind:
        found["train"] = training.kind
    if training.kind in ("lora", "qlora"):
        found["lora_rank"] = training.rank
    return found, unstated if training.kind else (*unstated, "train")


def _fsdp(entries: Entries, precision: str) -> ParsedConfig:
    """Settings of FSDP, from its section or from the words of older versions."""
    entries, findings = _section(entries)
    words = _words(entries)
    version = entries.integer(*_both_names("version")) or 2
    settings: dict[str, KnobValue] = {"reduce_dtype": "fp32" if precision == "fp32" else "bf16"}
    offloads = entries.flag(*_both_names("cpu_offload"), *_both_names("offload_params"))
    settings["offload"] = "all" if offloads or "offload" in words else "none"
    strategy = _strategy(entries, words)
    settings["reshard_after_forward"] = STRATEGIES.get(strategy, True)
    trainer_recompute = _recompute(entries)  # read in any case: entries that are not read are findings
    settings["recompute"] = "full" if entries.flag(*_both_names("activation_checkpointing")) else trainer_recompute
    spare = "dp_shard"
    if strategy == "no_shard":
        spare, settings["dp_shard"] = "dp_replicate", 1
    if strategy.startswith("hybrid"):
        message = "hybrid sharding shards in a node and replicates over nodes: it is priced as sharding over all"
        findings.append(finding("FMT-002", message, "give --fix dp_shard=GPUS_OF_A_NODE and dp_replicate", entries.source, "fsdp"))
    if version == 2 and strategy not in ("full_shard", "shard_grad_op"):
        message = f"fsdp {strategy} is FSDP1's"
        findings.append(finding("FMT-004", message, "set fsdp_config.version to 1", entries.source, "fsdp"))
    policy = str(entries.get(*_both_names("auto_wrap_policy")) or "TRANSFORMER_BASED_WRAP").upper()
    if policy != "TRANSFORMER_BASED_WRAP":
        entry = entries.present_name(*_both_names("auto_wrap_policy"))
        message = f"{entry} {policy}: the units that are gathered are not layers"
        findings.append(finding("FMT-002", message, "the price is that of layer by layer", entries.source, entry))
    return ParsedConfig(settings=settings, spare=spare, entry_names=SETTING_ENTRIES, findings=tuple(findings))


def _strategy(entries: Entries, words: Sequence[str]) -> str:
    """The sharding strategy: a word of ``fsdp``, unless ``reshard_after_forward`` states it."""
    resharded = entries.get(*_both_names("reshard_after_forward"))
    if isinstance(resharded, str) and resharded.lower() in (*STRATEGIES, "no_shard"):
        return resharded.lower()
    if resharded is not None:
        return "full_shard" if entries.flag(*_both_names("reshard_after_forward")) else "shard_grad_op"
    return next((word for word in words if word in STRATEGIES or word == "no_shard"), "full_shard")


def _both_names(name: str) -> tuple[str, str]:
    return f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}"


def _words(entries: Entries) -> tuple[str, ...]:
    """The old form of ``fsdp``: words in one string or in a list."""
    value = entries.get("fsdp")
    words = value if isinstance(value, list) else str(value).split()
    known = (*STRATEGIES, "no_shard", "offload", "auto_wrap", "true")
    found = tuple(str(word).lower() for word in words)
    if wrong := next((word for word in found if word not in known), ""):
        raise entries.source.error("fsdp", f"fsdp is {value}: true is needed, or words of {', '.join(known[:-1])}; not {wrong}")
    return found


def _section(entries: Entries) -> tuple[Entries, list[Diagnostic]]:
    """The arguments; if ``fsdp_config`` names a file, that file's entries take its place."""
    value = entries.get("fsdp_config")
    if not isinstance(value, str):
        return entries, []
    section_source, missing = _file(entries, "fsdp_config", value)
    if section_source is None:
        return entries, [missing] if missing else []
    named = {f"fsdp_config.{name}": entry for name, entry in section_source.entries.items()}
    merged = replace(entries.source, entries={**entries.source.entries, **named})
    return Entries(merged), []


def _file(entries: Entries, name: str, value: str) -> tuple[Source | None, Diagnostic | None]:
    """The file that an argument names, beside this one or in a folder above; a finding if it does not exist."""
    path = find_file(entries.source.entries[name].path or entries.source.path, value)
    if path is not None:
        return load(path), None
    message = f"{name} {value} is not found: the program's defaults are assumed"
    return None, finding("FMT-011", message, "check the file where the path leads to it", entries.source, name)


def _findings(entries: Entries, launcher: LauncherConfig) -> Iterator[Diagnostic]:
    source = entries.source
    if launcher.kind == "FSDP" and entries.enabled("fsdp"):
        message = "fsdp is set by the trainer and by accelerate: entries that only accelerate sets are not priced"
        yield finding("FMT-002", message, "set FSDP in one of them", source, f"{PREFIX}distributed_type")
    if source.launch and (config := entries.get("config")) is not None:
        message = f"config {config} is not found from the script's folder up: the program's defaults are assumed"
        yield finding("FMT-011", message, "name it by a path that leads to it", source, "config")
    if entries.flag("bf16") and entries.flag("fp16"):
        yield finding("FMT-004", "bf16 and fp16 are both true", "choose one", source, "fp16")
    if mesh := [name for name in source.entries if name.partition(".")[0] == MESH and entries.get(name) is not None]:
        entries.get(*mesh)
        message = f"{MESH} is an object of accelerate's: of a file a mapping comes, on which the trainer ends"
        do = "give accelerate the mesh by its own file, or split the model where the script loads it"
        yield finding("FMT-004", message, do, source, mesh[0])
    yield from _optimizer_findings(entries)
    if _every_n_layers(entries) > 2:
        entry = entries.present_name(*(f"{item}_kwargs.every_n_layers" for item in RECOMPUTES))
        text = f"{entry} {_every_n_layers(entries)} is priced as of all layers"
        yield finding("FMT-002", text, "it keeps more, and repeats less", source, entry)
    for name, effect in UNPRICED_ENTRIES.items():
        if entries.enabled(name):
            yield unsupported_entry(source, name, effect)
    if encoder := next((name for name in IMAGE_ENCODERS if entries.enabled(name)), ""):
        text = f"{encoder}: the image encoder is not priced: its weights and images take memory and time as well"
        yield finding("FMT-009", text, "leave room for it, and measure it", source, encoder, about=IMAGE_ENCODER)


def _optimizer_findings(entries: Entries) -> Iterator[Diagnostic]:
    name = str(entries.get("optim") or "adamw_torch")
    if name not in OPTIMIZERS or name.startswith("paged_"):
        difference = "its states can be on the host" if name in OPTIMIZERS else "its states differ"
        yield finding("FMT-002", f"optim {name} is priced as {_optimizer(entries)[0]}", difference, entries.source, "optim")
    if name in REMOVED_OPTIMIZERS:
        yield finding("FMT-001", f"optim {name} was removed in transformers 5", "write adamw_torch", entries.source, "optim")


IMAGE_ENCODERS = ("vision_tower", "mm_vision_tower", "vision_path", "vision_model_name_or_path", "image_tower")
"""Arguments of scripts that name an encoder of images (LLaVA, LLaVA-NeXT, InternVL)."""

UNPRICED_ENTRIES = {
    "beta": "the loss compares answers; a reference model may take memory as well",
    "num_generations": "answers are generated and scored",
    "auto_find_batch_size": "the micro-batch shrinks until it fits",
    "use_liger_kernel": "Liger's kernels fuse the operations between matmuls, and the loss",
    "torch_compile_mode": "kernels are tuned, or recorded",
    "neftune_noise_alpha": "embeddings get noise",
    "use_cpu": "nothing runs on the devices",
    "packing": "several documents share a sequence; give --document-tokens",
    "torch_empty_cache_steps": "the allocator's cache is emptied",
}
"""Arguments that change a step in a way that no setting expresses, with their effect."""

IGNORED_ENTRIES = (
    "adam_*", "accelerator_config.*", "activation_checkpointing_kwargs.*", "average_tokens_across_devices",
    "batch_eval_metrics", "chat_template*", "data_seed", "dataloader_*", "dataset*", "ddp_*", "debug", "disable_tqdm", "do_*",
    "enable_jit_checkpoint", "eval*", "fp16_*", "bf16_*", "fsdp_config", "fsdp_config.*", "full_determinism",
    "gradient_checkpointing_kwargs.*", "greater_is_better", "group_by_length", "hub_*", "ignore_data_skip", "include_*",
    "label_*", "learning_rate", "length_column_name", "load_best_model_at_end", "local_rank", "log*", "lora_*",
    "max_prompt_length", "pad_token", "shuffle_dataset", "truncation_mode",
    "lr_scheduler_*", "max_grad_norm", "max_steps", "metric_for_best_model", "num_train_epochs", "optim_*", "output_dir",
    "overwrite_output_dir", "per_device_eval_batch_size", "prediction_loss_only", "project", "push_to_hub",
    "remove_unused_columns", "report_to", "restore_*", "resume_from_checkpoint", "run_name", "save_*", "seed",
    "skip_memory_metrics", "tf32", "trackio_*", "train_sampling_strategy", "use_cache", "warmup_*", "weight_decay",
    "torch_dtype", "dtype", "attn_implementation", "model_revision", "trust_remote_code", "bnb_*", "use_bnb_nested_quant",
    "nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "num_processes", "rdzv*",
    "standalone", "nproc-per-node", "chat_template", "eos_token", "hub_model_revision", "dataset_mixture.datasets",
    "dataset_mixture.test_split_size", "dataset_mixture.seed",
)  # fmt: skip

FORMAT = Format(
    name="hf-trainer", title="TrainingArguments of transformers, 5", recognises=recognises, read=read,
    write=write, opened=opened, ignores=IGNORED_ENTRIES, listed="hf-trainer", scripts_add=True,
)  # fmt: skip
