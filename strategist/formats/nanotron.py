"""Nanotron's YAML: 3D parallelism with ZeRO-0 or 1, for models like Llama or Qwen.

Defaults: config/parallelism_config.py (GPipe: all forward passes, then all backward passes; tensor parallelism with
all-reduces), optim/zero.py (ZeRO-1 shards the optimizer's states over data ranks; parameters stay whole),
optim/gradient_accumulator.py (with ``accumulate_grad_in_fp32`` parameters have fp32 copies, otherwise everything is trained in
the model's dtype), models/base.py (float32), as of github.com/huggingface/nanotron 2411b02 (2026-04). Gradients are reduced
after the last micro-batch (parallel/data_parallel).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.environment import environment
from strategist.contract.knobs import KnobValue
from strategist.contract.layout import AXES
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.model import ModelShape, MoEShape
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.formats.commented_text import Shell, heading, yaml_text
from strategist.formats.config_entries import Entries
from strategist.formats.export_notes import header_lines, learning_rate_need, placed_notes, setting_notes
from strategist.formats.finding_codes import unsupported_entry
from strategist.formats.format import ExportedFiles, File, Format, Placeholder
from strategist.formats.launch_commands import start_script, torchrun
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.preset_match import related_presets
from strategist.formats.source import Source

MODEL, SCRIPT = "model.model_config", "run_train.py"
CHECKOUT = "NANOTRON"
"""Variable that names a checkout of Nanotron."""

ENGINES = {"1f1b": "1f1b", "afab": "gpipe"}
MODES = dict.fromkeys(("reduce_scatter", "REDUCE_SCATTER"), True) | dict.fromkeys(("all_reduce", "ALL_REDUCE"), False)
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "double": "fp32"}
WARMUP_STEPS = 2
"""The placeholder of Nanotron's example ``config_tiny_llama.yaml``."""

OPTIMIZERS = {"adamW": "adamw", "sgd": "sgd"}

SETTING_ENTRIES = {
    "pp": "parallelism.pp",
    "tp": "parallelism.tp",
    "cp": "parallelism.context_parallel_size",
    "ep": "parallelism.expert_parallel_size",
    "etp": "parallelism.expert_tensor_parallel_size",
    "dp_replicate": "parallelism.dp",
    "dp_shard": "parallelism.dp",
    "reshard_after_forward": "optimizer.zero_stage",
    "sequence_parallel": "parallelism.tp_mode",
    "pp_schedule": "parallelism.pp_engine",
    "recompute": "parallelism.recompute_layer",
    "micro_batch": "tokens.micro_batch_size",
    "seq_len": "tokens.sequence_length",
    "precision": "model.dtype",
    "reduce_dtype": "optimizer.accumulate_grad_in_fp32",
    "optimizer": "optimizer.optimizer_factory.name",
}


FOLDED = (SETTING_ENTRIES["etp"], "parallelism.expert_data_parallel_size", "parallelism.enabled_moe")
"""Entries of versions whose experts are spread over the ranks of the other layers (parallel/context.py as of 009b8f7, in 2025);
in others each data rank has further ranks for experts, which read its sequences again (as of 2411b02)."""


def recognises(source: Source) -> bool:
    """Whether a source is Nanotron's, by its sections for degrees and tokens."""
    return source.language == "yaml" and source.has("parallelism") and source.has("tokens.micro_batch_size")


def read(entries: Entries) -> ParsedConfig:
    """Settings that a configuration states, devices included."""
    stage = entries.integer("optimizer.zero_stage", minimum=0) or 0
    if stage > 1:
        raise entries.source.error("optimizer.zero_stage", f"optimizer.zero_stage is {stage}: 0 or 1 is needed")
    degrees, own_ranks = _degrees(entries, stage)
    split, scatters = degrees["tp"] > 1, bool(entries.choice(MODES, "parallelism.tp_mode"))
    sums = entries.flag("optimizer.accumulate_grad_in_fp32") is not False
    precision = entries.choice(DTYPES, "model.dtype") or "fp32"
    if precision == "bf16" and not sums:
        precision = "bf16-true"
    settings: dict[str, KnobValue] = {
        **degrees, "no_sync": True, "loss_parallel": split,
        "sequence_parallel": split and scatters,
        "pp_schedule": entries.choice(ENGINES, "parallelism.pp_engine") or "gpipe",
        "recompute": "full" if entries.flag("parallelism.recompute_layer") else "none",
        "micro_batch": entries.integer("tokens.micro_batch_size") or 1,
        "reduce_dtype": "fp32" if sums or precision == "fp32" else "bf16",
    }  # fmt: skip
    if stage or degrees["dp_shard"] * degrees["cp"] > 1:
        settings["reshard_after_forward"] = False
    optimizer = str(entries.get(SETTING_ENTRIES["optimizer"]) or "adamW")
    workload: dict[str, int | str] = {"train": "full", "precision": precision, "optimizer": OPTIMIZERS.get(optimizer, "adamw")}
    if tokens := entries.integer("tokens.sequence_length"):
        workload["seq_len"] = tokens
    return ParsedConfig(
        settings=settings, workload=workload, model=_model(entries, degrees["tp"]), entry_names=SETTING_ENTRIES,
        accumulation=entries.integer("tokens.batch_accumulation_per_replica") or 1,
        devices=math.prod(degrees[axis] for axis in AXES),
        findings=tuple(_unsupported_findings(entries, degrees, stage, optimizer, own_ranks)),
    )  # fmt: skip


def _degrees(entries: Entries, stage: int) -> tuple[dict[str, int], bool]:
    """All degrees, and whether experts have ranks of their own, which count as data ranks."""
    degrees = {name: entries.integer(SETTING_ENTRIES[name]) or 1 for name in ("pp", "tp", "cp", "ep", "etp")}
    own_ranks = degrees["ep"] > 1 and not any(entries.get(name) for name in FOLDED)
    data = (entries.integer("parallelism.dp") or 1) * (degrees["ep"] if own_ranks else 1)
    shards = data if stage else math.gcd(data, degrees["ep"])
    return {**degrees, "dp_shard": shards, "dp_replicate": data // shards}, own_ranks


def _model(entries: Entries, tp: int) -> ModelShape | None:
    """The shape of a Llama or Qwen, or None if it is not stated; the vocabulary is padded as in ``_vocab_size_with_padding``."""
    layers, hidden, heads = (
        entries.integer(f"{MODEL}.{name}") for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    if not (layers and hidden and heads):
        return None
    vocabulary = entries.integer(f"{MODEL}.vocab_size") or 32_000
    unit = (entries.integer("model.make_vocab_size_divisible_by") or 1) * tp
    try:
        shape = ModelShape(
            name=f"{layers} layers of {hidden}", layers=layers, hidden_size=hidden, heads=heads,
            kv_heads=entries.integer(f"{MODEL}.num_key_value_heads") or heads, head_size=hidden // heads,
            ffn_size=entries.integer(f"{MODEL}.intermediate_size") or 11_008, vocab_size=-(-vocabulary // unit) * unit,
            tied_embeddings=bool(entries.flag(f"{MODEL}.tie_word_embeddings")),
            qkv_bias=bool(entries.flag(f"{MODEL}.attention_bias")),
            rope_theta=entries.number(f"{MODEL}.rope_theta") or 10_000.0,
            norm_epsilon=entries.number(f"{MODEL}.rms_norm_eps") or 1e-6, moe=_experts(entries),
        )  # fmt: skip
    except (InputError, ValueError) as error:
        raise entries.source.error(f"{MODEL}.num_hidden_layers", f"{MODEL}: {error}") from None
    known = related_presets(shape)
    return replace(shape, name=known[0].name) if known else shape


def _experts(entries: Entries) -> MoEShape | None:
    experts = entries.integer(f"{MODEL}.moe_config.num_experts", f"{MODEL}.moe_num_experts")
    if not experts:
        return None
    width = entries.integer(f"{MODEL}.moe_config.moe_intermediate_size", f"{MODEL}.intermediate_size") or 11_008
    chosen = entries.integer(f"{MODEL}.moe_config.top_k", f"{MODEL}.num_experts_per_tok") or 1
    return MoEShape(
        experts=experts, experts_per_token=chosen, expert_ffn_size=width,
        shared_experts=int(bool(entries.flag(f"{MODEL}.moe_config.enable_shared_expert"))),
    )  # fmt: skip


def _unsupported_findings(
    entries: Entries, degrees: Mapping[str, int], stage: int, optimizer: str, own_ranks: bool
) -> Iterator[Diagnostic]:
    """Findings on entries that no setting expresses."""
    effects = {}
    if own_ranks:
        effects[SETTING_ENTRIES["ep"]] = "experts have ranks of their own, priced as data ranks with other sequences"
    elif degrees["ep"] > 1 and not stage:
        effects[SETTING_ENTRIES["ep"]] = "each rank keeps all optimizer states; the price shards them over ep"
    if degrees["cp"] > 1 and not stage:
        effects[SETTING_ENTRIES["cp"]] = "each context rank keeps all optimizer states; the price shards them"
    if optimizer not in OPTIMIZERS:
        effects[SETTING_ENTRIES["optimizer"]] = f"{optimizer} is priced as AdamW"
    for name in ("is_starcoder2_config", "is_mamba_config"):
        if entries.get(f"{MODEL}.{name}"):
            effects[f"{MODEL}.{name}"] = "its layers are priced as Llama's"
    for name, effect in effects.items():
        yield unsupported_entry(entries.source, name, effect)


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The configuration, and a script that starts run_train.py with it."""
    config = _config(plan)
    sharded = "dp_shard" if plan.candidate.layout.dp_shard > 1 else "dp_replicate"
    entries = ((entry, name) for name, entry in SETTING_ENTRIES.items() if entry != "parallelism.dp" or name == sharded)
    remarks, other_notes = placed_notes(config, entries, setting_notes(plan, reasons, ("cuda_connections",)))
    tokenizer = config["tokenizer"]["tokenizer_name_or_path"]
    needs = (
        f"{SCRIPT}: set {CHECKOUT} to a checkout of Nanotron (in a job by --env), or copy the files into one",
        "data: data_stages has no dataset, which Nanotron takes for random tokens",
        f"tokenizer: tokenizer_name_or_path is the placeholder {tokenizer}",
        learning_rate_need("learning_rate"),
        f"steps: train_steps is the placeholder {config['tokens']['train_steps']}, lr_warmup_steps {WARMUP_STEPS}",
    )
    text = heading((*header_lines(plan), "", *other_notes)) + yaml_text(config, remarks)
    command = ("torchrun", *torchrun(plan), Shell(f'"${{{CHECKOUT}:-.}}/{SCRIPT}"'), "--config-file", "train.yaml")
    variables = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} | environment(plan)
    start = start_script(plan, command, about=header_lines(plan), environment=variables)
    files = (File(name="train.yaml", text=text), File(name="train.sh", text=start, runs=True))
    name = "tokenizer_name_or_path: "
    placeholders = (Placeholder(input="tokenizer", text=f"{name}{tokenizer}", filled=f'{name}"{{}}"', need=needs[2]),)
    return ExportedFiles(
        files=files, command=("bash", "train.sh"), needs=needs, user_files=(SCRIPT,), user_folder=CHECKOUT,
        placeholders=placeholders,
    )  # fmt: skip


def _config(plan: Plan) -> dict[str, Any]:
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    adam = {"adam_eps": 1e-8, "adam_beta1": 0.9, "adam_beta2": 0.95, "torch_adam_is_fused": True}
    return {
        "general": {"project": "strategist", "run": plan.id, "seed": 42},
        "parallelism": {
            "dp": layout.data_ranks, "pp": layout.pp, "tp": layout.tp, "context_parallel_size": layout.cp,
            "expert_parallel_size": 1, "pp_engine": "afab" if knobs.pp_schedule == "gpipe" else "1f1b",
            "tp_mode": "REDUCE_SCATTER" if knobs.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": knobs.sequence_parallel, "recompute_layer": knobs.recompute == "full",
        },
        "tokens": {
            "sequence_length": workload.seq_len, "train_steps": 1000, "micro_batch_size": knobs.micro_batch,
            "batch_accumulation_per_replica": plan.accumulation,
        },
        "model": {
            "dtype": next(name for name, precision in DTYPES.items() if precision == workload.precision),
            "init_method": {"std": 0.025}, "make_vocab_size_divisible_by": 1, "model_config": _shape(plan.model, workload.seq_len),
        },
        "optimizer": {
            "zero_stage": int(layout.fsdp_ranks > 1), "accumulate_grad_in_fp32": True, "clip_grad": 1.0, "weight_decay": 0.01,
            "optimizer_factory": {"name": "adamW", **adam} if workload.optimizer == "adamw" else {"name": "sgd"},
            "learning_rate_scheduler": {
                "learning_rate": LEARNING_RATE, "lr_warmup_steps": WARMUP_STEPS, "lr_warmup_style": "linear",
                "lr_decay_style": "cosine", "min_decay_lr": 1e-5,
            },
        },
        "tokenizer": {"tokenizer_name_or_path": "gpt2"},
        "data_stages": [{"name": "Training", "start_training_step": 1, "data": {"dataset": None, "seed": 42}}],
        "checkpoints": {"checkpoints_path": "checkpoints", "checkpoint_interval": 1000},
    }  # fmt: skip


def _shape(model: ModelShape, seq_len: int) -> dict[str, Any]:
    return {
        "is_qwen2_config": True, "num_hidden_layers": model.layers, "hidden_size": model.hidden_size,
        "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads, "intermediate_size": model.ffn_size,
        "vocab_size": model.vocab_size, "tie_word_embeddings": model.tied_embeddings, "attention_bias": model.qkv_bias,
        "rope_theta": model.rope_theta, "rms_norm_eps": model.norm_epsilon, "max_position_embeddings": seq_len,
        "hidden_act": "silu",
    }  # fmt: skip


IGNORED_ENTRIES = (
    "checkpoints*", "data*", "doremi*", "general*", "lighteval*", "logging*", "metrics_logging*", "model.ddp_bucket*",
    "model.init_method*", "model.make_vocab*", "model.model_config.*", "optimizer.adam_*", "optimizer.clip_grad",
    "optimizer.learning_rate*", "optimizer.optimizer_factory*", "optimizer.torch_adam*", "optimizer.weight_decay*",
    "parallelism.enabled_moe", "parallelism.expert_data*", "parallelism.moe_layer*", "parallelism.tp_linear*",
    "parallelism.tp_recompute*", "profiler*", "s3_upload*", "tokenizer*",
    "tokens.*",
)  # fmt: skip

FORMAT = Format(
    name="nanotron", title="Nanotron's YAML, 2026-04", recognises=recognises, read=read, write=write,
    ignores=IGNORED_ENTRIES, listed="nanotron",
)  # fmt: skip
