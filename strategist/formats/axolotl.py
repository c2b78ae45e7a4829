"""Axolotl's YAML, 0.19: FSDP with its degrees, DeepSpeed or DDP, on the trainer of transformers.

Defaults: utils/schemas/*.py (one sequence of 512 tokens per rank, AdamW), utils/distributed.py (FSDP shards over the ranks that
no other degree takes: ``build_parallelism_config``), utils/config (with bf16 the model is loaded and trained in bf16;
accelerate's FSDP upcasts trained parameters to fp32 and reduces in bf16, DeepSpeed keeps fp32 copies; adapters of peft are in
fp32).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.environment import environment
from strategist.contract.knobs import KnobValue
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.formats.commented_text import REMAINING_ARGUMENTS, heading, yaml_text
from strategist.formats.config_entries import Entries
from strategist.formats.deepspeed_part import deepspeed_of
from strategist.formats.export_notes import header_lines, learning_rate_need, placed_notes, setting_notes
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import ExportedFiles, File, Format, Placeholder
from strategist.formats.launch_commands import start_script, torchrun
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source
from strategist.profiles.models import hub_name

DEFAULT_TOKENS, DEFAULT_RANK = 512, 8
FSDP = "fsdp_config"
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "paged_adamw_32bit", "optimi_adamw", "flash_adamw"), "adamw"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "ao_adamw_8bit", "adamw_torch_8bit"), "adamw8bit"),
    "sgd": "sgd",
    "muon": "muon",
}
TYPES = {"adamw": "adamw_torch_fused", "adamw8bit": "adamw_bnb_8bit", "sgd": "sgd"}
LINEARS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

UNPRICED_ENTRIES = {
    "chunked_cross_entropy": "the loss is taken in chunks",
    "use_eaft": "the loss weighs tokens",
    "fp8": "linears multiply in float8",
    "load_in_8bit": "weights are stored in 8 bits and priced in the compute type",
    "lora_mlp_kernel": "adapters have kernels of their own",
    "lora_modules_to_save": "further modules are fully trained",
    "peft_use_dora": "adapters scale rows as well",
    "qat": "weights are rounded as after quantization",
    "relora": "adapters are merged and begin anew",
    "rl": "the loss compares answers, mostly with a second model",
    "unfrozen_parameters": "only some parameters are trained; all are priced as trained, which needs more memory and time",
    "use_glm_dsa_kernels": "attention is sparse",
}
"""Entries that change a step in a way that no setting expresses, with their effect."""

SETTING_ENTRIES = {
    "dp_shard": "dp_shard_size",
    "dp_replicate": "dp_replicate_size",
    "tp": "tensor_parallel_size",
    "cp": "context_parallel_size",
    "micro_batch": "micro_batch_size",
    "seq_len": "sequence_len",
    "global_batch": "batch_size",
    "precision": "bf16",
    "optimizer": "optimizer",
    "train": "adapter",
    "lora_rank": "lora_r",
    "recompute": "gradient_checkpointing",
    "activation_offload": "activation_offloading",
    "reshard_after_forward": f"{FSDP}.reshard_after_forward",
    "offload": f"{FSDP}.offload_params",
    "pin_memory": f"{FSDP}.cpu_offload_pin_memory",
    "compile": "torch_compile",
}


def recognises(source: Source) -> bool:
    """Whether a source is Axolotl's: it has ``base_model``, and one of Axolotl's own names for batches, sequences or data."""
    axolotl_names = ("sequence_len", "micro_batch_size", "sample_packing", "chat_template", "datasets", "num_epochs")
    return source.language == "yaml" and source.has("base_model") and any(source.has(name) for name in axolotl_names)


def read(entries: Entries) -> ParsedConfig:
    """Settings that a configuration states; it runs on the devices that it is started on."""
    precision = _precision(entries)
    deepspeed = deepspeed_of(entries, "deepspeed", precision)
    sharded = deepspeed or _fsdp(entries)
    is_ddp = deepspeed is None and sharded.spare == "dp_replicate"
    workload = _workload(entries, precision, is_ddp)
    settings: dict[str, KnobValue] = {
        **sharded.settings,
        "micro_batch": entries.integer("micro_batch_size") or 1,
        "tp": entries.integer("tensor_parallel_size") or sharded.settings.get("tp", 1),
        "cp": entries.integer("context_parallel_size", "sequence_parallel_degree") or sharded.settings.get("cp", 1),
        "compile": entries.get("torch_compile") not in (None, False),
        **_recompute(entries),
    }
    if "reduce_dtype" not in settings:
        reduces_in_fp32 = workload["precision"] == "fp32" or (is_ddp and workload["precision"] != "bf16-true")
        settings["reduce_dtype"] = "fp32" if reduces_in_fp32 else "bf16"
    if not is_ddp:
        _degrees(entries, settings)
    accumulation = entries.integer("gradient_accumulation_steps")
    if accumulation is None and (batch := entries.integer("batch_size")):
        workload["global_batch"] = batch
    model = entries.get("base_model")
    findings = (*sharded.findings, *_unsupported_findings(entries, str(workload["train"])))
    return ParsedConfig(
        settings=settings, workload=workload, model=str(model) if model else None, model_entries=("base_model",),
        spare="" if sharded.spare in settings else sharded.spare,
        accumulation=accumulation or (None if "global_batch" in workload else 1),
        stack=sharded.stack, entry_names={**SETTING_ENTRIES, **sharded.entry_names}, findings=findings,
    )  # fmt: skip


def _degrees(entries: Entries, settings: dict[str, KnobValue]) -> None:
    """Writes the stated data-parallel degrees into ``settings``; without one, dp_shard takes the remaining ranks."""
    for name, entry in (("dp_shard", "dp_shard_size"), ("dp_replicate", "dp_replicate_size")):
        number = entries.integer(entry, minimum=-1)
        if number and number > 0:
            settings[name] = number


def _fsdp(entries: Entries) -> ParsedConfig:
    """Settings of FSDP's section, by names with or without the prefix ``fsdp_``; DDP without a section."""
    has_fsdp = any(entries.has(name) for name in (FSDP, "fsdp", "dp_shard_size")) and entries.get("fsdp") not in (False, [])
    if not has_fsdp:
        return ParsedConfig(settings={"no_sync": True}, spare="dp_replicate")
    words = {str(word) for word in entries.get("fsdp") or ()} if isinstance(entries.get("fsdp"), list) else set()
    strategy = str(entries.get(f"{FSDP}.sharding_strategy", f"{FSDP}.fsdp_sharding_strategy") or "FULL_SHARD")
    reshards = entries.flag(f"{FSDP}.reshard_after_forward", f"{FSDP}.fsdp_reshard_after_forward")
    offloads = entries.flag(f"{FSDP}.offload_params", f"{FSDP}.fsdp_offload_params") or "offload" in words
    settings: dict[str, KnobValue] = {
        "reshard_after_forward": strategy in ("FULL_SHARD", "HYBRID_SHARD", "1", "4") if reshards is None else reshards,
        "no_sync": True,
        "offload": "all" if offloads else "none",
        "pin_memory": entries.flag(f"{FSDP}.cpu_offload_pin_memory") is not False,
    }
    return ParsedConfig(settings=settings, spare="dp_shard")


def _recompute(entries: Entries) -> dict[str, KnobValue]:
    """Whether layers are recomputed, and whether their inputs are offloaded to the host."""
    kinds = {"true": True, "false": False, "offload": True, "offload_disk": True, "unsloth": True}
    recompute = entries.choice(kinds, "gradient_checkpointing") or entries.flag(
        f"{FSDP}.activation_checkpointing", f"{FSDP}.fsdp_activation_checkpointing"
    )
    offloads = str(entries.get("gradient_checkpointing")).startswith("offload") or entries.get("activation_offloading") not in (
        None, False,
    )  # fmt: skip
    return {"recompute": "full" if recompute else "none", "activation_offload": offloads}


def _precision(entries: Entries) -> str:
    """Compute dtype; bf16 is ``auto`` if it is not stated, and fp16 turns it off (utils/config: ``resolve_dtype``)."""
    bf16 = entries.choice({"true": True, "false": False, "full": True}, "bf16", "bfloat16")
    bf16_entry, fp16 = entries.source.entries.get("bf16"), entries.flag("fp16", "float16")
    if bf16 is None and (bf16_entry is None or bf16_entry.value == "auto"):
        bf16 = not fp16  # fp16 takes the place of bf16 on devices that lack it
    return "bf16" if bf16 else "fp16" if fp16 else "fp32"


def _workload(entries: Entries, precision: str, plain: bool) -> dict[str, int | str]:
    """Sequence length, precision, optimizer and what is trained. ``plain``: DDP, which trains a bf16 model without fp32 copies."""
    kinds = {"lora": "lora", "qlora": "qlora", "llama-adapter": "lora"}
    train = kinds.get(str(entries.get("adapter")), "full" if entries.get("adapter") is None else "lora")
    if train == "lora" and entries.flag("load_in_4bit"):
        train = "qlora"
    if precision == "bf16" and train == "full" and plain:
        precision = "bf16-true"
    found: dict[str, int | str] = {
        "train": train, "precision": precision, "seq_len": entries.integer("sequence_len") or DEFAULT_TOKENS,
        "optimizer": OPTIMIZERS.get(str(entries.get("optimizer") or "adamw_torch_fused"), "adamw"),
    }  # fmt: skip
    if train != "full":
        found["lora_rank"] = entries.integer("lora_r") or DEFAULT_RANK
    return found


def _unsupported_findings(entries: Entries, train: str) -> Iterator[Diagnostic]:
    """Findings on entries that no setting expresses."""
    source = entries.source
    effects = {name: effect for name, effect in UNPRICED_ENTRIES.items() if entries.enabled(name)}
    if (entries.integer("expert_parallel_size") or 1) > 1:
        effects["expert_parallel_size"] = "experts are dealt to ranks beside FSDP"
    optimizer = str(entries.get("optimizer") or "adamw_torch_fused")
    if optimizer not in OPTIMIZERS:
        effects["optimizer"] = f"{optimizer} is priced as AdamW"
    modules = entries.get("lora_target_modules")
    on_all = (
        entries.flag("lora_target_linear") or modules == "all-linear" or (isinstance(modules, list) and set(modules) >= LINEARS)
    )
    if train != "full" and not on_all:
        effects["adapter"] = "adapters are priced as on all linears"
    plugins = [str(name) for name in entries.get("plugins") or ()]
    if any("cut_cross_entropy" in name or "liger" in name.lower() for name in plugins):
        effects["plugins"] = "logits are never whole, and are priced as whole"
    for name, effect in effects.items():
        yield unsupported_entry(source, name, effect)
    if not any([entries.flag("sample_packing", "pretraining_sample_concatenation"), entries.flag("pad_to_sequence_len")]):
        text = "sequences are not packed; each is priced at sequence_len tokens"
        yield finding("FMT-003", text, "write sample_packing: true, or give --seq-len", source, "sequence_len")


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The configuration, and a script that starts a training with it."""
    config = _config(plan)
    entries = ((entry, name) for name, entry in SETTING_ENTRIES.items())
    remarks, other_notes = placed_notes(config, entries, setting_notes(plan, reasons))
    model, data = config["base_model"], config["datasets"][0]["path"]
    needs = (
        f"model: base_model is {model}, from the Hub, which wants HF_TOKEN where it is gated",
        f"data: datasets is the placeholder {data}",
        learning_rate_need("learning_rate"),
        f"steps: num_epochs is the placeholder {config['num_epochs']}",
    )
    text = heading((*header_lines(plan), "", *other_notes)) + yaml_text(config, remarks)
    command = ("axolotl", "train", "train.yaml", REMAINING_ARGUMENTS, "--launcher", "torchrun", "--", *torchrun(plan))
    start = start_script(plan, command, about=header_lines(plan), environment=environment(plan))
    files = (File(name="train.yaml", text=text), File(name="train.sh", text=start, runs=True))
    placeholders = (
        Placeholder(input="weights", text=f"base_model: {model}", filled='base_model: "{}"', need=needs[0]),
        Placeholder(input="data", text=f"path: {data}", filled='path: "{}"', need=needs[1]),
        Placeholder(input="tokenizer", text="\ndatasets:\n", filled='\ntokenizer_config: "{}"\ndatasets:\n'),
    )
    return ExportedFiles(files=files, command=("bash", "train.sh"), needs=needs, placeholders=placeholders)


def _config(plan: Plan) -> dict[str, Any]:
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    config: dict[str, Any] = {
        "base_model": hub_name(plan.model.name),
        "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
        "output_dir": "./outputs", "num_epochs": 1, "learning_rate": LEARNING_RATE,
        "sequence_len": workload.seq_len, "sample_packing": True, "attn_implementation": "flash_attention_2",
        "micro_batch_size": knobs.micro_batch, "gradient_accumulation_steps": plan.accumulation,
        "optimizer": TYPES[workload.optimizer], "bf16": workload.precision == "bf16",
        "gradient_checkpointing": knobs.recompute == "full",
    }  # fmt: skip
    if workload.train != "full":
        config |= {"adapter": workload.train, "lora_r": workload.lora_rank, "lora_alpha": 2 * workload.lora_rank}
        config |= {"lora_target_linear": True, "load_in_4bit": workload.train == "qlora"}
    if knobs.activation_offload:
        config["activation_offloading"] = True
    if knobs.compile:
        config["torch_compile"] = True
    if layout.fsdp_ranks > 1 or layout.tp > 1:
        config |= {"dp_replicate_size": layout.dp_replicate, "dp_shard_size": layout.dp_shard}
        config |= {"tensor_parallel_size": layout.tp, "context_parallel_size": layout.cp, "fsdp_version": 2}
        config[FSDP] = {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "state_dict_type": "FULL_STATE_DICT",
            "reshard_after_forward": bool(knobs.reshard_after_forward), "offload_params": knobs.offload == "all",
        }  # fmt: skip
        if knobs.offload == "all":
            config[FSDP]["cpu_offload_pin_memory"] = plan.candidate.options.pin_memory
    return config


IGNORED_ENTRIES = (
    "auto_resume*", "evaluation_strategy", "gradio_*", "lm_eval_*",
    "adam_*", "added_tokens*", "attn_implementation", "base_model_*", "bf16_full*", "bfloat16", "bnb*", "bnb_config*",
    "chat_template*", "cls_*", "comet_*", "cosine_*", "cuda_graphs*", "cut_cross_entropy", "data_seed", "dataloader*",
    "dataset_*", "datasets", "ddp", "ddp_*", "debug", "deepspeed_*", "default_system*", "delinearize*", "do_*", "dpo_*",
    "dynamic_checkpoint*", "early_*", "eot_tokens", "eval_*", "eval_sequence*", "evals_*", "excess_*", "experimental*",
    "flash_*", "float16", "fp16", "freeze_*", "fsdp", "fsdp_config.*", "fsdp_version", "gc_*", "gpu_memory*",
    "gradient_checkpointing_kwargs*", "gradient_clipping", "greater_is*", "group_by*", "heads_k_stride", "hf_*", "hub_*",
    "image_*", "include_*", "is_*", "jinja*", "kto_*", "learning_rate", "liger_*", "lisa_*", "llama4_*", "load_best*",
    "load_in_4bit", "local_rank", "loftq*", "logging_*", "lora_*", "loraplus*", "loss_watchdog*", "low_cpu*", "lr_*", "max_*",
    "merge_lora*", "metric_*", "min_sample*", "mlflow_*", "model_config*", "model_quantization*", "model_type", "neftune*",
    "noisy*", "num_epochs", "num_train*", "optim_*", "optimizer_*", "orpo_*", "otel*", "output_dir", "overrides_of*",
    "pad_to*", "peft*", "plugins", "pretraining_*", "process_reward*", "processor_*", "profiler*", "push_*", "quantization.*",
    "remove_unused*", "resize_token*", "resume_*", "revision_of*", "reward_*", "ring_attn_func", "roles_to*", "rope_*",
    "s2_*", "sample_packing_*", "save_*", "saves_*", "sdp_attention", "seed", "sequence_len_overflow*", "shuffle*", "simpo*",
    "skip_*", "special_tokens*", "split_*", "streaming*", "strict", "swanlab*", "telemetry*", "test_datasets", "tf32",
    "token_names*", "tokenizer_*", "tokens", "torch_compile_*", "torch_dtype", "trackio*", "train_on*", "trl.*", "trust_*",
    "type_of*", "type_of_model", "unfrozen*", "use_comet", "use_mlflow", "use_tensorboard", "use_wandb", "val_*", "vllm*",
    "wandb_*", "warmup_*", "weight_decay", "xformers*",
)  # fmt: skip

FORMAT = Format(
    name="axolotl", title="Axolotl's YAML, 0.19", recognises=recognises, read=read, write=write,
    ignores=IGNORED_ENTRIES, listed="axolotl",
)  # fmt: skip
