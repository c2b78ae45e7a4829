"""TRL: defaults of its trainers, and configurations of accelerate that it ships, which its command ``trl`` selects by name.

As of TRL 1.16.0: trl/trainer/base_config.py and the trainers' own files beside it (defaults), trl/cli/accelerate_config.py (values
of ``--accelerate_config``), trl/accelerate_configs/ (the files).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strategist.formats.script_arguments import SEQUENCE
from strategist.formats.source import Entry, Source

CONFIG = "accelerate_config"
"""The option, and the entry of the trainer's file, that names a configuration of accelerate."""

_ALL = {"mixed_precision": "bf16", "num_machines": 1, "num_processes": 8}
_FSDP = {
    "distributed_type": "FSDP", "fsdp_config.fsdp_activation_checkpointing": False, "fsdp_config.fsdp_offload_params": False,
    "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
}  # fmt: skip
_ZERO = {"distributed_type": "DEEPSPEED"}
SHIPPED: Mapping[str, Mapping[str, Any]] = {
    "single_gpu": {**_ALL, "distributed_type": "NO"},
    "multi_gpu": {**_ALL, "distributed_type": "MULTI_GPU"},
    "fsdp1": {**_ALL, **_FSDP, "fsdp_config.fsdp_version": 1, "fsdp_config.fsdp_reshard_after_forward": "FULL_SHARD"},
    "fsdp2": {**_ALL, **_FSDP, "fsdp_config.fsdp_version": 2, "fsdp_config.fsdp_reshard_after_forward": True},
    "zero1": {**_ALL, **_ZERO, "deepspeed_config.zero_stage": 1, "deepspeed_config.gradient_accumulation_steps": 1},
    "zero2": {**_ALL, **_ZERO, "deepspeed_config.zero_stage": 2},
    "zero3": {**_ALL, **_ZERO, "deepspeed_config.zero_stage": 3},
}
"""Entries of the shipped files that a plan depends on, by file name without suffix."""


LENGTHS = {"sft": 1024, "dpo": 1024, "kto": 1024, "reward": 1024}
"""Default of ``max_length`` by trainer."""

NOT = "no_gradient_checkpointing"
"""Flag that turns recomputation off."""


def with_defaults(source: Source) -> Source:
    """The arguments of TRL's commands with its trainers' defaults; other sources as they are.

    TRL recomputes activations and computes in bf16 unless told otherwise; transformers' own arguments do neither.
    """
    trainer = source.launch.trl if source.launch else ""
    if not trainer:
        return source
    defaults: dict[str, Any] = {"gradient_checkpointing": NOT not in source.entries, "use_peft": False}
    if "fp16" not in source.entries:
        defaults["bf16"] = True
    if trainer in LENGTHS and not any(name in source.entries for name in SEQUENCE):
        defaults["max_length"] = LENGTHS[trainer]
    stated = {name: entry for name, entry in source.entries.items() if name != NOT}
    return replace(source, entries={name: Entry(name=name, value=value) for name, value in defaults.items()} | stated)


def shipped(name: str) -> Source | None:
    """The shipped configuration of that name; None without one."""
    if name not in SHIPPED:
        return None
    path = f"trl/accelerate_configs/{name}.yaml"
    entries = {key: Entry(name=key, value=value, path=path) for key, value in SHIPPED[name].items()}
    return Source(path=path, text="", language="yaml", entries=entries)
