"""Commands ``swift sft`` and ``swift pt`` of ms-swift, and the YAML of the same arguments, read only.

ms-swift trains with the trainer of transformers, whose reader is used; its own names and defaults are put in its terms. Defaults:
main of 2026, swift/trainers/arguments.py (one sequence per rank, recomputed layers, no accumulation stated),
swift/arguments/tuner_args.py (LoRA of rank 8 on all linear layers), swift/arguments/base_args/model_args.py
(``_init_mixed_precision``: computes in the type of the weights), swift/config/*.json (the names of DeepSpeed and FSDP
configurations). Without FSDP or DeepSpeed all parameters are trained in the type that they are loaded in.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.errors import FileError
from strategist.formats import hf_trainer
from strategist.formats.config_entries import OFF, Entries
from strategist.formats.finding_codes import finding
from strategist.formats.format import Format
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.referenced_files import find_file, named_entries
from strategist.formats.script_arguments import MODES
from strategist.formats.source import Entry, Launch, Source, load

_COMMAND = re.compile(r"^[^#\n]*?(?<![\w-])swift[ \t]+(?:sft|pt)(?!\S)(?:[ \t]+(?P<file>[^\s-]\S*\.(?:ya?ml|json)))?", re.MULTILINE)
NAMES = {"model": "model_name_or_path", "quant_bits": "bits"}
"""ms-swift's names of arguments, by which the trainer's reader knows them."""

DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 1, "gradient_checkpointing": True, "tuner_type": "lora", "lora_rank": 8, "bits": 16,
}  # fmt: skip
HALVES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp16"}
"""Argument of mixed precision that a type of the weights sets."""

ZERO = "deepspeed.zero_optimization"
CPU = {f"{ZERO}.offload_optimizer.device": "cpu"}
CONFIGURATIONS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    **{("deepspeed", f"zero{stage}"): {f"{ZERO}.stage": stage} for stage in range(4)},
    ("deepspeed", "zero2_offload"): {f"{ZERO}.stage": 2, **CPU},
    ("deepspeed", "zero3_offload"): {f"{ZERO}.stage": 3, **CPU, f"{ZERO}.offload_param.device": "cpu"},
    ("fsdp", "fsdp2"): {
        "fsdp": "full_shard auto_wrap", "fsdp_config.version": 2, "fsdp_config.reshard_after_forward": True,
        "fsdp_config.activation_checkpointing": True,
    },
}  # fmt: skip
"""Entries of the shipped configurations that a plan depends on, by argument and name."""

FROZEN = ("freeze_llm", "freeze_parameters", "freeze_parameters_ratio", "freeze_parameters_regex", "trainable_parameters")


def recognises(source: Source) -> bool:
    """Whether a source is ms-swift's: a script with its command, or YAML with its name of the training mode."""
    if source.language == "command":
        return _COMMAND.search(source.text) is not None
    return source.language in ("yaml", "json") and source.has("model") and source.has("tuner_type")


def opened(source: Source) -> Source:
    """The source in the terms of transformers' trainer, with ms-swift's defaults and the entries of the files that it names."""
    stated = {name: entry for name, entry in source.entries.items() if not name.isupper()}  # upper case: variables of the command
    if source.language == "command" and (found := _COMMAND.search(source.text)) and found["file"]:
        stated = {**_entries_of(source, found["file"]), **stated}
    if (fsdp := stated.get("fsdp")) and str(fsdp.value).endswith(".json"):
        del stated["fsdp"]
        stated |= {name: entry for name, entry in _entries_of(source, str(fsdp.value)).items() if name.startswith("fsdp")}
    entries = {NAMES.get(name, name): replace(entry, name=NAMES.get(name, name)) for name, entry in stated.items()}
    for (name, word), values in CONFIGURATIONS.items():
        if name in entries and entries[name].value == word:
            entry = entries.pop(name)
            entries |= {key: replace(entry, name=key, value=value) for key, value in values.items()}
    if mode := next((name for name in MODES if name in entries), ""):
        entries["tuner_type"] = replace(entries.pop(mode), name="tuner_type")
    if "bf16" not in entries and "fp16" not in entries:
        weights = entries.get("torch_dtype")
        half = HALVES.get(str(weights.value) if weights else "bfloat16", "bf16")
        entries[half] = replace(weights, name=half, value=True) if weights else Entry(name=half, value=True)
    missing = {name: Entry(name=name, value=value) for name, value in DEFAULTS.items() if name not in entries}
    return replace(source, entries={**entries, **missing}, launch=Launch(accelerate=False, options={}))


def _entries_of(source: Source, name: str) -> Mapping[str, Entry]:
    """Entries of a file that the source names.

    Raises:
        FileError: it is not found, or cannot be read.
    """
    path = find_file(source.path, name)
    if path is None:
        raise FileError(source.path, f"names {name}, which is not found; write a path that leads to it")
    return {entry.name: entry for entry in named_entries(load(path))}


def read(entries: Entries) -> ParsedConfig:
    """Settings that the arguments state; the launcher's environment decides the devices."""
    entries.get(*DEFAULTS, "quant_method")
    found = hf_trainer.read(entries)
    workload = dict(found.workload)
    sharded = entries.has("deepspeed") or entries.has("fsdp")
    if workload["train"] == "full" and workload["precision"] == "bf16" and not sharded:
        workload["precision"] = "bf16-true"
    return replace(
        found, workload=workload, accumulation=entries.integer("gradient_accumulation_steps"),
        findings=(*found.findings, *_findings(entries, str(workload["train"]))),
    )  # fmt: skip


def _findings(entries: Entries, train: str) -> Iterator[Diagnostic]:
    """Findings on arguments that no setting expresses."""
    source, mode = entries.source, str(entries.get("tuner_type"))
    if mode not in ("full", "lora"):
        yield finding(
            "FMT-002", f"tuner_type {mode} is priced as {train}", "measure it", source, "tuner_type", about="finetuning_type"
        )
    if entries.get("quant_method") not in (None, "bnb"):
        method = entries.get("quant_method")
        yield finding(
            "FMT-002", f"quant_method {method} is priced as bnb", "measure it", source, "quant_method", about="quantization_method"
        )
    if train != "full" and entries.get("target_modules") not in (None, "all-linear", ["all-linear"]):
        text = "target_modules: adapters are priced as on all linears"
        yield finding("FMT-002", text, "measure it if it matters", source, "target_modules", about="lora_target")
    for name in FROZEN:
        if entries.get(name) not in (*OFF, "0.", "0.0"):
            text = f"{name}: only some parameters are trained; all are priced as trained"
            yield finding("FMT-002", text, "measure it if it matters", source, name, about="unfrozen_parameters")


IGNORED_ENTRIES = (
    *hf_trainer.IGNORED_ENTRIES, "add_version", "agent_template", "attn_impl", "cached_dataset", "check_model", "columns",
    "create_*", "custom_*", "deepspeed.*", "external_plugins",
    "freeze_aligner", "freeze_vit", "gradient_checkpointing_kwargs", "init_weights", "interleave_prob",
    "load_from_cache_file", "loss_scale", "max_epochs", "max_new_tokens", "max_pixels", "model_*", "padding_free", "padding_side",
    "router_aux_loss_coef", "split_dataset_ratio", "stopping_strategy", "stream*", "swanlab_*", "system", "task_type", "template",
    "temperature", "truncation_strategy", "use_chat_template", "use_hf", "val_dataset", "vit_*",
)  # fmt: skip

FORMAT = Format(
    name="ms-swift",
    title="ms-swift's commands sft and pt",
    recognises=recognises,
    read=read,
    opened=opened,
    ignores=IGNORED_ENTRIES,
)
