"""transformers' HfArgumentParser, and the plugins of accelerate that TrainingArguments make of a file.

``hf_trainer.py check RANKS FILE...`` prints the settings of each file, or why it is refused; ``hf_trainer.py names`` all names
that such a file may contain, as listed in profiles/formats/names/hf-trainer.txt: those of TrainingArguments, of the sections that
they read, and of the scripts of TRL, which most files are for.
"""

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true", "TRANSFORMERS_VERBOSITY": "error", "DS_LOG_LEVEL": "error"}

import deepspeed.runtime.config as read
import transformers.training_args as module
from accelerate.utils import FullyShardedDataParallelPlugin
from transformers import HfArgumentParser, TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

SECTIONS = (
    "activation_checkpointing_kwargs",
    "gradient_checkpointing_kwargs",
    "lr_scheduler_kwargs",
    "liger_kernel_config",
    "deepspeed",
)


def check(ranks: int, path: str) -> dict[str, Any]:
    """The settings of a file as a rank of this many reads them."""
    module.is_torch_bf16_gpu_available = lambda: True
    TrainingArguments.world_size = property(lambda self: ranks)  # type: ignore[assignment,method-assign]
    try:
        (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(path)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    accelerator = arguments.accelerator_config
    found = {
        "micro_batch": arguments.per_device_train_batch_size, "accumulation": arguments.gradient_accumulation_steps,
        "bf16": arguments.bf16, "fp16": arguments.fp16, "optim": str(arguments.optim.value),
        "compile": arguments.torch_compile and arguments.torch_compile_backend == "inductor",
        "recompute": arguments.activation_checkpointing, "recompute_kwargs": arguments.activation_checkpointing_kwargs,
        "save_steps": arguments.save_steps, "bucket": arguments.ddp_bucket_cap_mb,
        "each": bool((accelerator.gradient_accumulation_kwargs or {}).get("sync_each_batch")), "kind": "replicas",
    }  # fmt: skip
    if arguments.fsdp_plugin_args:
        plugin = FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
        found |= {
            "kind": "fsdp", "version": plugin.fsdp_version, "reshard": plugin.reshard_after_forward,
            "offload": type(plugin.cpu_offload).__name__, "recompute": plugin.activation_checkpointing,
        }  # fmt: skip
    if arguments.deepspeed_plugin:
        read.dist = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: ranks)
        config = {**arguments.deepspeed_plugin.deepspeed_config}
        understood = read.DeepSpeedConfig(json.loads(json.dumps(config, default=str).replace("Infinity", "1000000")))
        zero = understood.zero_config
        found |= {
            "kind": "deepspeed", "stage": int(zero.stage), "hpz": zero.zero_hpz_partition_size, "whole": config["train_batch_size"],
            "types": [understood.bfloat16_config.enabled, understood.float16_config.enabled],
            "accumulated": understood.grad_accum_dtype, "reduced": str(understood.communication_data_type),
            "optimizer_device": zero.offload_optimizer.device if zero.offload_optimizer else "none",
            "parameter_device": zero.offload_param.device if zero.offload_param else "none",
            "tp": understood.tensor_parallel_config.autotp_size,
            "loss_parallel": understood.tensor_parallel_config.vocab_parallel_lm_head,
            "pinned": zero.offload_optimizer.pin_memory if zero.offload_optimizer else True,
        }  # fmt: skip
    return found


def names() -> Iterator[str]:
    """All names."""
    yield from (field.name for field in fields(TrainingArguments))
    text = Path(module.__file__).read_text(encoding="utf-8")
    for name in re.findall(r"fsdp_config(?:\.get\(|\.setdefault\(|\[)[\"'](\w+)[\"']", text):
        yield from (f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}")
    for field in fields(AcceleratorConfig):
        yield f"accelerator_config.{field.name}"
    yield "accelerator_config.gradient_accumulation_kwargs.*"
    yield from (f"{section}.*" for section in SECTIONS)
    roots = [Path(folder) / "trl" for folder in sys.path if (Path(folder) / "trl" / "trainer").exists()]
    for path in (
        path for root in roots for path in sorted(root.rglob("*.py")) if "config" in path.name or path.parent.name == "scripts"
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Arguments")):
                yield from _annotated(node)


def _annotated(node: ast.ClassDef) -> Iterator[str]:
    """Fields of a dataclass, and a pattern for those that are dictionaries."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_"):
            yield item.target.id
            if "dict" in ast.unparse(item.annotation):
                yield f"{item.target.id}.*"


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "check":
        print(json.dumps([check(int(rest[0]), path) for path in rest[1:]], default=str))
    else:
        print(json.dumps(sorted(set(names()))))
