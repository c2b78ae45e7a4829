"""DeepSpeed's own ``DeepSpeedConfig``, with the number of ranks of a plan.

``deepspeed.py check RANKS FILE...`` prints the settings of each file, or why it is refused; ``deepspeed.py names`` all names that
it reads, free sections as patterns, as listed in profiles/formats/names/deepspeed.txt; ``deepspeed.py shipped`` the configurations
of its package.

Names at the top level, and in sections that are plain dictionaries, are the keys that DeepSpeedConfig looks up.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_LOG_LEVEL"] = "error"

import deepspeed.runtime.config as read
from pydantic import BaseModel

SECTIONS = {
    "zero_optimization": "deepspeed.runtime.zero.config.DeepSpeedZeroConfig",
    "bf16": "deepspeed.runtime.precision_config.DeepSpeedBF16Config",
    "fp16": "deepspeed.runtime.precision_config.DeepSpeedFP16Config",
    "tensor_parallel": "deepspeed.runtime.tensor_parallel.config.TPTrainingConfig",
    "compile": "deepspeed.compile.config.CompileConfig",
    "hybrid_engine": "deepspeed.runtime.config.HybridEngineConfig",
    "tensorboard": "deepspeed.monitor.config.TensorBoardConfig",
    "wandb": "deepspeed.monitor.config.WandbConfig",
    "csv_monitor": "deepspeed.monitor.config.CSVConfig",
    "comet": "deepspeed.monitor.config.CometConfig",
    "comms_logger": "deepspeed.comm.config.CommsLoggerConfig",
    "flops_profiler": "deepspeed.profiling.config.DeepSpeedFlopsProfilerConfig",
}
"""Sections with their own class; for one that is not a pydantic model, the keys that it looks up."""

PLAIN = ("activation_checkpointing", "expert_parallel", "data_types", "torch_autocast", "checkpoint", "optimizer", "scheduler")
FREE = (
    "checkpoint.parallel_write", "datastates_ckpt", "optimizer.params", "scheduler.params", "aio", "autotuning", "data_efficiency",
    "datastates", "pipeline", "timers", "weight_quantization",
)  # fmt: skip
OUTSIDE = ("data_parallel_size", "sequence_parallel_size", "monitor_config.*", "zero_optimization")
"""Names that other code reads from the same file: initialize, the monitor, and the old form of ZeRO's section."""


class KeyRecorder(dict[str, Any]):
    """A dictionary that records the looked-up keys."""

    def __init__(self, entries: dict[str, Any], names: set[str]) -> None:
        super().__init__(entries)
        self.names = names

    def __copy__(self) -> "KeyRecorder":
        return self

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def check(ranks: int, path: str) -> dict[str, Any]:
    """The settings of a file on this number of ranks."""
    read.dist = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: ranks)
    try:
        config = read.DeepSpeedConfig(path)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    zero = config.zero_config
    return {
        "train_batch_size": config.train_batch_size,
        "micro_batch": config.train_micro_batch_size_per_gpu,
        "accumulation": config.gradient_accumulation_steps,
        "stage": int(zero.stage),
        "hpz": zero.zero_hpz_partition_size,
        "offload_optimizer": zero.offload_optimizer.device if zero.offload_optimizer else "none",
        "offload_param": zero.offload_param.device if zero.offload_param else "none",
        "pinned": zero.offload_optimizer.pin_memory if zero.offload_optimizer else None,
        "bf16": config.bfloat16_config.enabled,
        "fp16": config.float16_config.enabled,
        "optimizer": config.optimizer_name,
        "tp": config.tensor_parallel_config.autotp_size,
        "vocab_parallel": config.tensor_parallel_config.vocab_parallel_lm_head,
        "grad_accum_dtype": config.grad_accum_dtype,
        "communication_data_type": str(config.communication_data_type),
        "cpu_checkpointing": config.activation_checkpointing_config.cpu_checkpointing,
    }


def names() -> Iterator[str]:
    """All names."""
    keys = {name: set[str]() for name in ("", *PLAIN)}
    sections = {name: KeyRecorder({"type": "Adam"} if name in ("optimizer", "scheduler") else {}, keys[name]) for name in PLAIN}
    filled = KeyRecorder({"train_batch_size": 1, **sections}, keys[""])
    sections["expert_parallel"]["enabled"] = False
    read.DeepSpeedConfig(filled)
    yield from keys[""] - set(SECTIONS) - set(PLAIN) - {free.partition(".")[0] for free in FREE} - removed()
    for section in PLAIN:
        yield from (f"{section}.{name}" for name in keys[section] if f"{section}.{name}" not in FREE)
    for section, path in SECTIONS.items():
        module, _, word = path.rpartition(".")
        yield from fields(section, getattr(__import__(module, fromlist=[word]), word))
    yield from (*SECTIONS, *PLAIN, "bfloat16.*")
    yield from (f"{free}.*" for free in FREE)
    yield from OUTSIDE


def removed() -> set[str]:
    """Names that are looked up only to be refused."""
    return set(read._REMOVED_TOP_LEVEL_CONFIG_KEYS)


def fields(prefix: str, section: type) -> Iterator[str]:
    """Names and aliases of a model's fields and of nested models; a pattern for fields with free keys."""
    if not issubclass(section, BaseModel):
        found = set[str]()
        section(KeyRecorder({prefix: KeyRecorder({}, found)}, set()))
        yield from (f"{prefix}.{name}" for name in found)
        return
    for name, field in section.model_fields.items():
        inner = [kind for kind in getattr(field.annotation, "__args__", (field.annotation,)) if isinstance(kind, type)]
        model = next((kind for kind in inner if issubclass(kind, BaseModel)), None)
        for word in {name, field.alias or name}:
            if model is not None:
                yield from fields(f"{prefix}.{word}", model)
            yield f"{prefix}.{word}"
            if "Dict" in str(field.annotation):
                yield f"{prefix}.{word}.*"


def shipped() -> Iterator[str]:
    """The configurations of the package."""
    for path in sorted(Path(read.__file__).parents[1].rglob("*.json")):
        if "zero_optimization" in path.read_text(encoding="utf-8"):
            yield str(path)


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "check":
        print(json.dumps([check(int(rest[0]), path) for path in rest[1:]]))
    elif command == "names":
        print(json.dumps(sorted(set(names()))))
    else:
        print(json.dumps(list(shipped())))
