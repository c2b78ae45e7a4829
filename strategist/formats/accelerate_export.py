"""Exports a plan as a config file of ``accelerate launch``, with a start script."""

from collections.abc import Iterator, Mapping
from typing import Any

from strategist.contract.environment import environment
from strategist.contract.plan import Plan
from strategist.formats.commented_text import Shell, heading, yaml_text
from strategist.formats.deepspeed_export import runs_on_deepspeed
from strategist.formats.export_notes import header_lines, placed_notes, setting_notes
from strategist.formats.format import ExportedFiles, File
from strategist.formats.launch_commands import MASTER_ADDR, MASTER_PORT, NODE_RANK, start_script

FSDP, PARALLELISM = "fsdp_config.fsdp", "parallelism_config.parallelism_config"
DYNAMO, ZERO = "dynamo_config.dynamo", "deepspeed_config"
CONFIG, SCRIPT = "accelerate.yaml", "train.py"
DEGREES = {"dp_replicate": "dp_replicate_size", "dp_shard": "dp_shard_size", "cp": "cp_size", "tp": "tp_size"}
MIXED = {"bf16": "bf16", "fp16": "fp16", "fp32": "no", "bf16-true": "no"}
REMARKS = {
    "mixed_precision": "reduce_dtype",
    f"{FSDP}_reshard_after_forward": "reshard_after_forward",
    f"{FSDP}_offload_params": "offload",
    f"{FSDP}_activation_checkpointing": "recompute",
    f"{FSDP}_activation_checkpointing_offload": "activation_offload",
    f"{PARALLELISM}_cp_comm_strategy": "cp_rotate",
    **{f"{PARALLELISM}_{entry}": name for name, entry in DEGREES.items()},
    f"{DYNAMO}_backend": "compile",
    f"{DYNAMO}_use_fullgraph": "fullgraph",
    f"{ZERO}.zero_stage": "no_sync",
    f"{ZERO}.offload_optimizer_device": "offload",
}
"""Entries, with the setting that each one states; the setting's remark is written beside the entry."""

STEPS = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
"""Environment variable that Accelerator itself reads (accelerator.py)."""


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The config file, and a script that starts a training with it."""
    data = configuration(plan)
    remarks, other_notes = placed_notes(data, REMARKS.items(), setting_notes(plan, reasons))
    head = heading((*header_lines(plan), *other_notes))
    config = File(name=CONFIG, text=head + yaml_text(data, remarks))
    variables = {**environment(plan), STEPS: str(plan.accumulation)}
    rendezvous = (f"--machine_rank={NODE_RANK}", f"--main_process_ip={MASTER_ADDR}", f"--main_process_port={MASTER_PORT}")
    command = ("accelerate", "launch", *(map(Shell, rendezvous) if plan.cluster.nodes > 1 else ()), "--config_file", CONFIG, SCRIPT)
    start = start_script(plan, command, about=header_lines(plan), environment=variables)
    files = (config, File(name="train.sh", text=start, runs=True))
    return ExportedFiles(files=files, command=("bash", "train.sh"), needs=tuple(_needs(plan)), user_files=(SCRIPT,))


def _needs(plan: Plan) -> Iterator[str]:
    workload, knobs = plan.workload, plan.candidate.knobs
    yield "train.py: your training script, which loads model, tokenizer and data, and has a learning rate"
    sequences = f"{knobs.micro_batch} {'sequence' if knobs.micro_batch == 1 else 'sequences'} of {workload.seq_len} tokens"
    yield f"batches: train.py reads {sequences} a device, {plan.accumulation} times a step"
    yield f"optimizer: train.py updates with {workload.optimizer}"
    if knobs.recompute == "full" and kind(plan) != "FSDP":
        yield "recomputation: train.py enables gradient_checkpointing of transformers"
    if plan.candidate.layout.tp > 1:
        yield "tensor parallelism: train.py calls from_pretrained(..., tp_plan='auto', device_mesh=...)"


def kind(plan: Plan) -> str:
    """Distributed type: DeepSpeed if only ZeRO can run the plan, FSDP for other sharding or offload, else DDP or one process."""
    layout = plan.candidate.layout
    if runs_on_deepspeed(plan, "accelerate"):
        return "DEEPSPEED"
    if layout.fsdp_ranks == 1 and layout.tp == 1 and plan.candidate.knobs.offload == "none":
        return "MULTI_GPU" if layout.dp_replicate > 1 else "NO"
    return "FSDP"


def configuration(plan: Plan) -> dict[str, Any]:
    """The data that ``accelerate config`` would write."""
    knobs, chosen = plan.candidate.knobs, kind(plan)
    data: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": chosen,
        "mixed_precision": MIXED[plan.workload.precision],
        "num_machines": plan.cluster.nodes,
        "num_processes": plan.cluster.devices,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if chosen == "FSDP":
        data["fsdp_config"] = _fsdp(plan)
        data |= {"parallelism_config": degrees} if (degrees := _degrees(plan)) else {}
    elif chosen == "DEEPSPEED":
        data["deepspeed_config"] = _deepspeed(plan)
    if knobs.compile:
        data["dynamo_config"] = {
            "dynamo_backend": "INDUCTOR", "dynamo_mode": "default", "dynamo_use_dynamic": False,
            "dynamo_use_fullgraph": plan.candidate.options.fullgraph, "dynamo_use_regional_compilation": True,
        }  # fmt: skip
    return data


def _fsdp(plan: Plan) -> dict[str, Any]:
    knobs = plan.candidate.knobs
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": knobs.reshard_after_forward,
        "fsdp_offload_params": knobs.offload == "all",
        "fsdp_activation_checkpointing": knobs.recompute == "full",
        "fsdp_activation_checkpointing_offload": knobs.activation_offload,
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _degrees(plan: Plan) -> dict[str, Any]:
    """Sizes of the device mesh; empty if FSDP alone takes all ranks."""
    layout = plan.candidate.layout
    if layout.dp_shard == layout.world_size:
        return {}
    found: dict[str, Any] = {f"parallelism_config_{entry}": getattr(layout, name) for name, entry in DEGREES.items()}
    if layout.cp > 1:
        found["parallelism_config_cp_comm_strategy"] = plan.candidate.options.cp_rotate
    return found


def _deepspeed(plan: Plan) -> dict[str, Any]:
    knobs, layout = plan.candidate.knobs, plan.candidate.layout
    resharded = layout.dp_shard > 1 and knobs.reshard_after_forward is not False
    stage = 3 if resharded or knobs.offload == "all" else 1 if knobs.no_sync and plan.accumulation > 1 else 2
    return {
        "zero_stage": stage,
        "offload_optimizer_device": "none" if knobs.offload == "none" else "cpu",
        "offload_param_device": "cpu" if knobs.offload == "all" else "none",
        "gradient_accumulation_steps": plan.accumulation,
        "zero3_init_flag": stage == 3,
        "zero3_save_16bit_model": stage == 3,
    }
