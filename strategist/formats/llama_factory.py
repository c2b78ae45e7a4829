"""LLaMA-Factory's training YAML, v0.9.5: the trainer of transformers, alone or with DeepSpeed or FSDP.

Defaults: src/llamafactory/hparams/*.py (LoRA of rank 8 on all linear layers, sequences of 2048 tokens), transformers'
TrainingArguments (8 sequences per rank, one micro-batch per step, fp32), model/model_utils/checkpointing.py (layers are
recomputed unless that is disabled; unsloth's variant offloads the checkpointed inputs to the host). Trained parameters are in
fp32 unless ``pure_bf16`` (model/adapter.py). FSDP reduces in the compute dtype (accelerate: ``set_mixed_precision``). FSDP and
DDP reduce after the last micro-batch (``no_sync``), DeepSpeed according to its stage.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.environment import environment
from strategist.contract.knobs import KnobValue
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.formats.commented_text import heading, yaml_text
from strategist.formats.config_entries import Entries
from strategist.formats.deepspeed_part import deepspeed_of
from strategist.formats.export_notes import header_lines, learning_rate_need, placed_notes, setting_notes
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import ExportedFiles, File, Format, Placeholder
from strategist.formats.launch_commands import start_script
from strategist.formats.launcher import launcher_config, sharded_by_launcher, with_launcher_entries
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source
from strategist.profiles.models import hub_name
from strategist.programs.backends import find_program
from strategist.search.facts import plan_facts

DEFAULT_MICRO_BATCH, DEFAULT_TOKENS, DEFAULT_RANK = 8, 2048, 8
ONLINE = "ONLINE"
"""Value of dataset_dir with which a dataset is a name on the Hub or a folder. Otherwise dataset_dir must have a dataset_info.json,
which no export has (get_dataset_list in src/llamafactory/data/parser.py, v0.9.5).
"""

STAGES = {
    "pt": "", "sft": "", "rm": "losses compare two answers", "ppo": "answers are generated and scored",
    "dpo": "a second model judges both answers", "kto": "a second model judges the answer",
}  # fmt: skip
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_anyprecision"), "adamw"),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"), "adamw8bit"),
    **dict.fromkeys(("paged_adamw", "paged_adamw_32bit"), "adamw"),
    "sgd": "sgd",
}
UNPRICED_ENTRIES = {
    "additional_target": "further modules are fully trained",
    "enable_liger_kernel": "Liger's kernels fuse the operations between matmuls, and the loss",
    "fp8": "linears multiply in float8",
    "mixture_of_depths": "tokens pass layers by",
    "neat_packing": "packed texts do not see each other",
    "pissa_init": "adapters begin with the greatest singular values",
    "pref_ftx": "a second loss is added",
    "shift_attn": "attention is shifted between groups of heads",
    "use_adam_mini": "the optimizer keeps fewer states",
    "use_apollo": "gradients are projected to a low rank",
    "use_badam": "a part of the layers is updated at a time",
    "use_dora": "adapters scale rows as well",
    "use_galore": "gradients are projected to a low rank",
    "use_hyper_parallel": "HyperParallel chooses the sharding",
    "use_kt": "experts are computed on the host",
    "use_llama_pro": "only added layers are trained",
    "use_mca": "Megatron-Core trains, with its own degrees and shards",
    "use_muon": "",
    "use_unsloth": "its kernels take less time and memory",
}
"""Arguments that change a step in a way that no setting expresses, with their effect."""

SETTING_ENTRIES = {
    "micro_batch": "per_device_train_batch_size",
    "precision": "bf16",
    "train": "finetuning_type",
    "lora_rank": "lora_rank",
    "seq_len": "cutoff_len",
    "optimizer": "optim",
    "recompute": "disable_gradient_checkpointing",
    "activation_offload": "use_unsloth_gc",
    "dp_shard": "fsdp",
    "reshard_after_forward": "fsdp",
    "offload": "fsdp",
    "compile": "torch_compile",
}


def recognises(source: Source) -> bool:
    """Whether a source is LLaMA-Factory's: YAML, JSON or a command with at least two names that only LLaMA-Factory has."""
    llama_factory_names = ("finetuning_type", "cutoff_len", "lora_target", "template", "stage")
    named = source.has("model_name_or_path") or source.has("stage")
    return source.language in ("yaml", "json", "command") and named and sum(source.has(name) for name in llama_factory_names) > 1


def read(entries: Entries) -> ParsedConfig:
    """Settings that a configuration states; it runs on the devices that it is started on."""
    workload = _workload(entries)
    settings: dict[str, KnobValue] = {
        "micro_batch": entries.integer("per_device_train_batch_size") or DEFAULT_MICRO_BATCH,
        "recompute": "none" if entries.flag("disable_gradient_checkpointing") else "full",
        "compile": bool(entries.flag("torch_compile")),
    }
    settings["activation_offload"] = settings["recompute"] == "full" and bool(entries.flag("use_unsloth_gc"))
    precision = str(workload["precision"])
    found = deepspeed_of(entries, "deepspeed", precision) or _fsdp(entries, precision)
    settings |= found.settings
    if "reduce_dtype" not in settings:
        halved = workload["precision"] != "fp32" and (found.spare == "dp_shard" or workload["precision"] == "bf16-true")
        settings["reduce_dtype"] = "bf16" if halved else "fp32"
    model = entries.get("model_name_or_path")
    return ParsedConfig(
        settings=settings, workload=workload, model=str(model) if model else None,
        model_entries=("model_name_or_path",), spare=found.spare,
        accumulation=entries.integer("gradient_accumulation_steps") or 1,
        devices=found.devices, stack=found.stack, entry_names={**SETTING_ENTRIES, **found.entry_names},
        findings=(*found.findings, *_unsupported_findings(entries, str(workload["train"]))),
    )  # fmt: skip


def _fsdp(entries: Entries, precision: str) -> ParsedConfig:
    """Settings of FSDP as the trainer reads them, from a string or a list; otherwise DDP, unless the launcher shards."""
    launcher = launcher_config(entries, "" if precision == "fp32" else precision.removesuffix("-true"))
    value = entries.get("fsdp")
    words = {str(word) for word in (value if isinstance(value, list) else str(value or "").replace(",", " ").split())}
    if launcher.shards_first or not words - {"false", "False", "[]"}:
        return sharded_by_launcher(ParsedConfig(settings={"no_sync": True}, spare="dp_replicate"), launcher, entries)
    reshards = "full_shard" in words or "true" in words or "True" in words or "hybrid_shard" in words
    findings: tuple[Diagnostic, ...] = ()
    if words & {"hybrid_shard", "hybrid_shard_zero2"}:
        text = "fsdp: shards stay within a node, which is priced as over all devices"
        findings = (finding("FMT-002", text, "give --fix dp_shard=GPUS", entries.source, "fsdp"),)
    settings: dict[str, KnobValue] = {
        "reshard_after_forward": reshards, "no_sync": True, "offload": "all" if "offload" in words else "none",
    }  # fmt: skip
    return ParsedConfig(settings=settings, spare="dp_shard", findings=findings)


def _workload(entries: Entries) -> dict[str, int | str]:
    """Sequence length, precision, optimizer and what is trained."""
    kind = entries.choice({"lora": "lora", "full": "full", "freeze": "full", "oft": "lora"}, "finetuning_type") or "lora"
    bits = entries.integer("quantization_bit")
    if kind == "lora" and bits is not None and bits <= 4:
        kind = "qlora"
    half = "bf16" if entries.flag("bf16") else "fp16" if entries.flag("fp16") else "fp32"
    found: dict[str, int | str] = {
        "train": kind,
        "precision": "bf16-true" if entries.flag("pure_bf16") else half,
        "seq_len": entries.integer("cutoff_len") or DEFAULT_TOKENS,
        "optimizer": OPTIMIZERS.get(str(entries.get("optim") or "adamw_torch"), "adamw"),
    }
    if entries.flag("use_muon"):
        found["optimizer"] = "muon"
    if kind != "full":
        found["lora_rank"] = entries.integer("lora_rank") or DEFAULT_RANK
    return found


def _unsupported_findings(entries: Entries, train: str) -> Iterator[Diagnostic]:
    """Findings on entries that no setting expresses."""
    source = entries.source
    effects = {name: effect for name, effect in UNPRICED_ENTRIES.items() if effect and entries.enabled(name)}
    if effect := entries.choice(STAGES, "stage"):
        effects["stage"] = effect
    if entries.get("finetuning_type") == "freeze":
        effects["finetuning_type"] = (
            "freeze trains some layers only, and is priced as full training, which needs more memory and time"
        )
    if entries.get("finetuning_type") == "oft":
        text = "finetuning_type: oft is priced as lora"
        yield finding("FMT-002", text, "measure it if it matters", source, "finetuning_type", about="oft")
    if (bits := entries.integer("quantization_bit")) and bits > 4:
        effects["quantization_bit"] = f"weights are stored in {bits} bits and priced in the compute type"
    if (method := entries.get("quantization_method")) not in (None, "bnb"):
        effects["quantization_method"] = f"weights are quantized by {method} and priced as by bitsandbytes"
    if train != "full" and entries.get("lora_target") not in (None, "all", ["all"]):
        effects["lora_target"] = "adapters are priced as on all linears"
    if str(entries.get("optim") or "adamw_torch") not in OPTIMIZERS:
        effects["optim"] = "the size of its states is not known; priced as Adam's"
    for name, effect in effects.items():
        yield unsupported_entry(source, name, effect)
    if not entries.flag("packing", "neat_packing") and entries.get("stage") != "pt":
        text = "sequences are not packed; each is priced at cutoff_len tokens"
        yield finding("FMT-003", text, "write packing: true, or give --seq-len", source, "cutoff_len")


RUN_ARGUMENTS = ("output_dir", "do_train", "max_steps", "logging_steps", "save_strategy", "report_to", "disable_tqdm", "seed")
"""Arguments of the program's trials that a training sets differently."""


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The configuration, with the arguments of the program of this name, and a script that starts a training with it."""
    data = _arguments(plan)
    entries = ((entry, name) for name, entry in SETTING_ENTRIES.items())
    remarks, other_notes = placed_notes(data, entries, setting_notes(plan, reasons))
    model = data["model_name_or_path"]
    needs = (
        f"model: model_name_or_path is {model}, from the Hub, which wants HF_TOKEN where it is gated",
        f"data: dataset is the placeholder {data['dataset']}; dataset_dir {ONLINE} takes names of the Hub and folders",
        f"template: template is the placeholder {data['template']}",
        learning_rate_need("learning_rate"),
        f"steps: num_train_epochs is the placeholder {data['num_train_epochs']}",
    )
    text = heading((*header_lines(plan), "", *other_notes)) + yaml_text(data, remarks)
    processes = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(plan.cluster.gpus_per_node)}
    variables = processes | {"NNODES": str(plan.cluster.nodes)} | environment(plan)
    start = start_script(plan, ("llamafactory-cli", "train", "train.yaml"), about=header_lines(plan), environment=variables)
    files = (File(name="train.yaml", text=text), File(name="train.sh", text=start, runs=True))
    placeholders = (
        Placeholder(input="weights", text=f"model_name_or_path: {model}", filled='model_name_or_path: "{}"', need=needs[0]),
        Placeholder(input="data", text=f"dataset: {data['dataset']}", filled='dataset: "{}"', need=needs[1]),
    )
    return ExportedFiles(files=files, command=("bash", "train.sh"), needs=needs, placeholders=placeholders)


def _arguments(plan: Plan) -> dict[str, Any]:
    """Arguments of a training: placeholders, and those that the program has for the plan."""
    program = find_program("llama-factory")
    assert program is not None
    given = {"environment.CONFIG_FILE": "", "folder": "", "steps": "", "seed": ""}
    data: dict[str, Any] = {
        "model_name_or_path": hub_name(plan.model.name), "stage": "sft", "do_train": True, "dataset": "tatsu-lab/alpaca",
        "dataset_dir": ONLINE, "template": "default", "output_dir": "saves", "learning_rate": LEARNING_RATE,
        "num_train_epochs": 3.0,
    }  # fmt: skip
    for word in program.arguments(plan_facts(plan), given):
        name, stated, value = word.partition("=")
        if stated and name not in RUN_ARGUMENTS:
            _put(data, name.split("."), _value(value))
    return data


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Stores a value in nested mappings; ``path`` are the parts of its dotted name."""
    for key in path[:-1]:
        data = data.setdefault(key, {})
    data[path[-1]] = value


def _value(text: str) -> Any:
    """The value of a text after ``KEY=``: true, false, a whole number or the text itself."""
    return {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)


IGNORED_ENTRIES = (
    "accelerator_config*", "adam_*", "adapter_*", "add_special*", "add_tokens", "aggregate_*", "audio_*", "auto_find*",
    "average_tokens*", "batch_eval*", "bf16_full*", "buffer_size", "cache_dir", "cache_mode", "config", "create_new_adapter",
    "crop_to*", "data_seed", "data_shared*", "dataloader*", "dataset*", "ddp_*", "default_system", "disable_shuffling",
    "disable_tqdm", "do_*", "double_quantization", "dpo*", "enable_thinking", "eval*", "flash_attn",
    "freeze_*", "fsdp_*", "fsdp_config*", "full_determinism", "generation_*", "gradient_checkpointing*", "greater_is_better",
    "group_by*", "hf_hub*", "hub_*", "ignore_*", "image_*", "include_*", "interleave*", "jit_*", "kto*", "label_*",
    "learning_rate", "length_column*", "load_best*", "log_*", "logging_*", "lora_alpha", "lora_dropout", "loraplus*",
    "low_cpu*", "lr_scheduler*", "mask_*", "max_grad*", "max_samples", "max_steps", "media_dir", "metric_*", "mix_*",
    "model_revision", "module_dropout", "moe_aux*", "ms_hub*", "nan_inf*", "neftune*", "new_special*", "num_train*",
    "num_workers", "om_hub*", "output_dir", "overwrite_*", "packing", "past_index", "placement_strategy", "plot_loss", "ppo*",
    "per_device_eval*", "predict_*", "pref_*", "preprocessing_*", "print_param*", "project", "push_to*", "quantization_type",
    "ray_*", "ref_model*", "remove_unused*", "report_to", "reserved_label*", "resize_vocab", "resources_per*", "restore_callback*",
    "resume_from*", "rope_scaling", "run_name", "save_*", "seed", "simpo*", "skip_*", "split*", "stage", "streaming",
    "swanlab*", "template", "tf32", "tokenized_path", "tool_format", "torch_compile_*", "trackio*", "train_on*",
    "trust_remote*", "upcast*", "use_cache", "use_cpu", "use_dft*", "use_fast*", "use_reentrant*", "use_rslora",
    "use_swanlab", "val_size", "video_*", "warmup_*", "weight_decay",
)  # fmt: skip

FORMAT = Format(
    name="llama-factory", title="LLaMA-Factory's training YAML, 0.9", recognises=recognises, read=read,
    write=write, opened=with_launcher_entries, ignores=IGNORED_ENTRIES, listed="llama_factory",
)  # fmt: skip
