"""accelerate's own launcher: the environment that it sets for ranks, as its plugins read it.

``accelerate.py check FILE...`` prints the settings of each file, or why it is refused; ``accelerate.py launch OPTIONS...``
the same for a launch with each of these options, which name a file; ``accelerate.py names`` all names that such a file may contain,
as listed in profiles/formats/names/accelerate.txt; ``accelerate.py shipped`` the files of TRL's package.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "ACCELERATE_LOG_LEVEL": "error", "DS_LOG_LEVEL": "error"}

from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin, TorchDynamoPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

SECTIONS = {
    "fsdp_config": ("fsdp_", True), "parallelism_config": ("parallelism_config_", False), "dynamo_config": ("dynamo_", True),
    "fp8_config": ("fp8_", True), "megatron_lm_config": ("megatron_lm_", False), "mpirun_config": ("mpirun_", False),
}  # fmt: skip
"""Sections, with the prefix of their arguments' names, and whether the launcher adds the prefix itself."""

DEEPSPEED = (
    "deepspeed_", "zero", "offload_optimizer_", "offload_param_", "gradient_accumulation_steps", "gradient_clipping",
)  # fmt: skip
BEFORE = dict(os.environ)


def check(options: list[str]) -> dict[str, Any]:
    """The settings that a launch with a file has."""
    os.environ.clear()
    os.environ.update(BEFORE)
    try:
        parser = launch_command_parser()
        args, *_ = _validate_launch_command(parser.parse_args([*options, "--main_process_ip", "127.0.0.1", "train.py"]))
        args.main_process_port = 0
        if args.use_deepspeed:
            args.deepspeed_fields_from_accelerate_config = ",".join(load_config_from_file(args.config_file).deepspeed_config)
            environment = prepare_deepspeed_cmd_env(args)[1]
        else:
            environment = prepare_multi_gpu_env(args)
        os.environ.update(environment)
        return _settings(args)
    except (Exception, SystemExit) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def _settings(args: Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "processes": int(args.num_processes), "nodes": args.num_machines, "per_node": int(args.num_processes) // args.num_machines,
        "precision": os.environ["ACCELERATE_MIXED_PRECISION"],
        "kind": "deepspeed" if args.use_deepspeed else "fsdp" if args.use_fsdp else "several" if args.multi_gpu else "one",
    }  # fmt: skip
    dynamo = TorchDynamoPlugin()
    found["compiled"] = dynamo.backend.value.lower() != "no" and dynamo.use_regional_compilation
    found["fullgraph"] = dynamo.fullgraph
    if args.use_fsdp:
        plugin = FullyShardedDataParallelPlugin()
        plugin.set_mixed_precision("fp32" if found["precision"] == "no" else found["precision"])
        found |= {
            "version": plugin.fsdp_version, "reshard": plugin.reshard_after_forward, "offload": type(plugin.cpu_offload).__name__,
            "recompute": plugin.activation_checkpointing, "activation_offload": plugin.activation_checkpointing_offload,
            "reduce_dtype": str(plugin.mixed_precision_policy.reduce_dtype), "wrap": plugin.auto_wrap_policy.__name__,
        }  # fmt: skip
    if args.use_parallelism_config:
        mesh = ParallelismConfig()
        found["degrees"] = [mesh.dp_replicate_size, mesh.dp_shard_size, mesh.cp_size, mesh.tp_size]
        found["rotate"] = mesh.cp_handler.cp_comm_strategy if mesh.cp_handler else "allgather"
    if args.use_deepspeed:
        config = DeepSpeedPlugin().deepspeed_config
        zero = config["zero_optimization"]
        found |= {
            "stage": int(zero["stage"]), "accumulation": config["gradient_accumulation_steps"],
            "optimizer_device": zero["offload_optimizer"]["device"], "parameter_device": zero["offload_param"]["device"],
        }  # fmt: skip
    return found


def names() -> Iterator[str]:
    """All names; those of sections are names of the launcher's arguments."""
    yield from ("fp16", "dynamo_backend", "deepspeed_config", *SECTIONS)
    yield from (field.name for field in fields(ClusterConfig))
    yield from ("fsdp_config.fsdp_ignored_modules", "fsdp_config.ignored_modules")  # not an argument, but read (utils/launch.py)
    arguments = sorted({action.dest for action in launch_command_parser()._actions})
    for section, (prefix, short) in SECTIONS.items():
        for name in (name for name in arguments if name.startswith(prefix)):
            yield f"{section}.{name}"
            if short:
                yield f"{section}.{name.removeprefix(prefix)}"
    yield from (f"deepspeed_config.{name}" for name in arguments if name.startswith(DEEPSPEED))


def shipped() -> list[str]:
    """The config files of TRL's package."""
    roots = [Path(folder) / "trl" / "accelerate_configs" for folder in sys.path]
    return [str(path) for root in roots for path in sorted(root.glob("*.yaml"))]


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "check":
        print(json.dumps([check(["--config_file", path]) for path in rest]))
    elif command == "launch":
        print(json.dumps([check(options.split()) for options in rest]))
    elif command == "names":
        print(json.dumps(sorted(set(names()))))
    else:
        print(json.dumps(shipped()))
