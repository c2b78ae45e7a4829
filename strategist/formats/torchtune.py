"""Configuration of torchtune's recipes, read only: full fine-tuning, LoRA and QLoRA with FSDP2.

Defaults: recipes/{full,lora}_finetune_distributed.py of torchtune (main of 2025). Parameters, gradients and optimizer states have
the one type ``dtype``; FSDP2 takes the ranks that no other degree takes and reduces in every micro-batch; layers are recomputed
with ``enable_activation_checkpointing`` or, without it, by ``ac_mode`` and ``ac_option``. ``model._component_`` names the model and
what is trained (``lora_llama3_1_8b``).
"""

import re
from collections.abc import Iterator

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.formats.config_entries import Entries
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import Format
from strategist.formats.memory_effects import REFERENCE_MODEL
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source

MODEL, LENGTH, OPTIMIZER, LOSS = "model._component_", "tokenizer.max_seq_len", "optimizer._component_", "loss._component_"
RECOMPUTE = "enable_activation_checkpointing"
DEFAULT_RANK = 8
PRECISIONS = {"bf16": "bf16-true", "fp32": "fp32"}
OPTIMIZERS = {
    "AdamW": "adamw", "Adam": "adamw", "PagedAdamW": "adamw", "AdamW8bit": "adamw8bit", "PagedAdamW8bit": "adamw8bit",
    "SGD": "sgd",
}  # fmt: skip
PRICED_LOSS = "CEWithChunkedOutputLoss"
COMPARING = ("DPO", "RSO", "SimPO", "PPO", "GRPO")
"""Prefixes of losses of preferences and rewards."""

ALL_LINEARS = {"q_proj", "k_proj", "v_proj", "output_proj"}

SETTING_ENTRIES = {
    "model": MODEL,
    "train": MODEL,
    "lora_rank": "model.lora_rank",
    "seq_len": LENGTH,
    "micro_batch": "batch_size",
    "precision": "dtype",
    "optimizer": OPTIMIZER,
    "optimizer_kernel": "optimizer.fused",
    "optimizer_in_backward": "optimizer_in_bwd",
    "recompute": RECOMPUTE,
    "activation_offload": "enable_activation_offloading",
    "reshard_after_forward": "fsdp_reshard_after_forward",
    "offload": "fsdp_cpu_offload",
    "dp_shard": "data_parallel_shard_dim",
    "dp_replicate": "data_parallel_replicate_dim",
    "tp": "tensor_parallel_dim",
    "cp": "context_parallel_dim",
    "cp_rotate": "context_parallel_rotate_method",
    "compile": "compile",
}

_SIZE = re.compile(r"(?<=\d)_(?=\d)")
_TUNED = re.compile(r"_(instruct|base)$")


def recognises(source: Source) -> bool:
    """Whether a source is torchtune's: YAML whose model is a component of torchtune."""
    entry = source.entries.get(MODEL)
    return source.language == "yaml" and entry is not None and str(entry.value).startswith("torchtune.")


def read(entries: Entries) -> ParsedConfig:
    """Settings that a configuration states; ``tune run`` decides the devices.

    Raises:
        FileError: a value is invalid, or the configuration trains nothing.
    """
    if not entries.has(OPTIMIZER):
        law = "there is no optimizer: the recipe evaluates or generates, and trains nothing"
        raise entries.source.error(MODEL, f"{law}; name a recipe that trains")
    name, train = _model(entries)
    workload = _workload(entries, train)
    settings = _settings(entries, str(workload["precision"]))
    return ParsedConfig(
        settings=settings, workload=workload, model=name, spare="" if "dp_shard" in settings else "dp_shard",
        accumulation=entries.integer("gradient_accumulation_steps") or 1, entry_names=SETTING_ENTRIES,
        findings=tuple(_findings(entries, train)), unstated=() if "micro_batch" in settings else ("micro_batch",),
    )  # fmt: skip


def _settings(entries: Entries, precision: str) -> dict[str, KnobValue]:
    settings: dict[str, KnobValue] = {
        "tp": entries.integer("tensor_parallel_dim") or 1,
        "cp": entries.integer("context_parallel_dim") or 1,
        "dp_replicate": entries.integer("data_parallel_replicate_dim") or 1,
        "reshard_after_forward": entries.flag("fsdp_reshard_after_forward") is not False,
        "no_sync": False,
        "offload": "all" if entries.flag("fsdp_cpu_offload") else "none",
        "recompute": _recompute(entries),
        "activation_offload": bool(entries.flag("enable_activation_offloading")),
        "compile": entries.enabled("compile", "compile.model"),
        "optimizer_in_backward": bool(entries.flag("optimizer_in_bwd")),
        "optimizer_kernel": "fused" if entries.flag("optimizer.fused") else "foreach",
        "reduce_dtype": "fp32" if precision == "fp32" else "bf16",
    }
    if micro := entries.integer("batch_size"):
        settings["micro_batch"] = micro
    if (shards := entries.integer("data_parallel_shard_dim", minimum=-1)) and shards > 0:
        settings["dp_shard"] = shards
    if int(settings["cp"]) > 1:
        rotations = {name: name for name in ("allgather", "alltoall")}
        settings["cp_rotate"] = entries.choice(rotations, "context_parallel_rotate_method") or "allgather"
    return settings


def _model(entries: Entries) -> tuple[str | None, str]:
    """The model's name, None without a size in it; and what is trained."""
    *_, family, builder = str(entries.get(MODEL)).split(".")
    kind = next((kind for kind in ("qlora", "lora") if builder.startswith(f"{kind}_")), "full")
    size = _TUNED.sub("", builder.removeprefix(f"{kind}_")).removeprefix(family).strip("_")
    name = "-".join(_SIZE.sub(".", part).replace("_", "-") for part in (family, size))
    return name if size else None, "qlora" if kind == "lora" and entries.flag("model.quantize_base") else kind


def _recompute(entries: Entries) -> str:
    """Recomputation of all layers, of every second layer, or of selected operations."""
    mode, option = str(entries.get("ac_mode") or ""), str(entries.get("ac_option") or "")
    if entries.flag(RECOMPUTE):
        return "none" if mode else "full"
    if mode != "selective":
        return "full" if mode == "full" else "none"
    return "selective" if option == "op" else "full" if option == "1" else "every_second_layer"


def _workload(entries: Entries, train: str) -> dict[str, int | str]:
    """Sequence length, precision, optimizer and what is trained."""
    found: dict[str, int | str] = {
        "train": train,
        "precision": entries.choice(PRECISIONS, "dtype") or "bf16-true",
        "optimizer": OPTIMIZERS.get(_component(entries, OPTIMIZER), "adamw"),
    }
    if length := entries.integer(LENGTH, "dataset.max_seq_len"):
        found["seq_len"] = length
    if train != "full":
        found["lora_rank"] = entries.integer("model.lora_rank") or DEFAULT_RANK
    return found


def _component(entries: Entries, name: str) -> str:
    """The last part of a component's name."""
    return str(entries.get(name)).rpartition(".")[2]


def _findings(entries: Entries, train: str) -> Iterator[Diagnostic]:
    """Findings on entries that no setting expresses."""
    source, unpriced = entries.source, {}
    if (optimizer := _component(entries, OPTIMIZER)) not in OPTIMIZERS:
        unpriced[OPTIMIZER] = f"{optimizer} is priced as AdamW"
    elif optimizer.startswith("Paged"):
        unpriced[OPTIMIZER] = f"{optimizer} can move its states to the host; they are priced on the device"
    loss = _component(entries, LOSS)
    if loss.startswith(COMPARING):
        text = f"{LOSS} {loss}: answers are compared or generated, mostly with a second model; the price leaves that out"
        yield finding("FMT-002", text, "measure it if it matters", source, LOSS, about=REFERENCE_MODEL)
    elif loss != PRICED_LOSS:
        unpriced[LOSS] = f"{loss} is priced as {PRICED_LOSS}"
    adapts_mlp = entries.flag("model.apply_lora_to_mlp") is True
    if train != "full" and not (set(entries.get("model.lora_attn_modules") or ()) >= ALL_LINEARS and adapts_mlp):
        unpriced["model.lora_attn_modules"] = "adapters are priced as on all linears"
    for name, effect in (
        ("teacher_model._component_", "a second model is loaded, which the price leaves out"),
        ("quantizer._component_", "weights are rounded as after quantization"),
        ("model.use_dora", "adapters scale rows as well"),
        ("enable_fp8_training", "linears multiply in float8"),
    ):
        if entries.enabled(name):
            unpriced[name] = effect
    for name, effect in unpriced.items():
        yield unsupported_entry(source, name, effect)
    if entries.get(LENGTH) is not None and not entries.flag("dataset.packed"):
        text = f"{LENGTH}: sequences are not packed; each is priced at this maximum length"
        yield finding("FMT-003", text, "write dataset.packed: true, or give --seq-len", source, LENGTH)


IGNORED_ENTRIES = (
    "batch_size_val", "checkpointer*", "clip_grad_norm", "collate_fn", "cudnn_deterministic_mode", "custom_sharded_layers*",
    "data_seed", "dataset*", "device", "enable_async_checkpointing", "epochs", "log_*", "loss.*", "lr_scheduler*",
    "max_steps_per_epoch", "metric_logger*", "model.*", "optimizer.*", "output_dir", "profiler*", "quantizer.*",
    "resize_token_embeddings", "resume_from_checkpoint", "run_val_every_n_steps", "save_*", "seed", "shuffle",
    "tensor_parallel_plan*", "tokenizer*", "fp8_recipe_name", "ac_option", "low_cpu_ram", "base_model_path", "name", "max_seq_len",
    "teacher_checkpointer*", "teacher_model.*", "kd_*", "ref_*checkpointer*", "activation_offloading_use_streams",
)  # fmt: skip

FORMAT = Format(
    name="torchtune", title="torchtune's YAML", recognises=recognises, read=read, ignores=IGNORED_ENTRIES, listed="torchtune"
)
