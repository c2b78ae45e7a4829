"""Exports a plan as TrainingArguments of transformers, with a start script."""

from collections.abc import Mapping
from typing import Any

from strategist.contract.environment import environment
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.formats.commented_text import heading, yaml_text
from strategist.formats.deepspeed_export import TENSOR, ZERO, runs_on_deepspeed, section, tensors
from strategist.formats.export_notes import header_lines, learning_rate_need, placed_notes, setting_notes
from strategist.formats.format import ExportedFiles, File
from strategist.formats.launch_commands import start_script, torchrun

ARGUMENTS, SCRIPT = "arguments.yaml", "train.py"
SYNC = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
GATHERED = "stage3_gather_16bit_weights_on_model_save"
"""Without it the trainer's last save of ZeRO-3 has shards only (accelerate, ``Accelerator.get_state_dict``)."""

OPTIM = {"foreach": "adamw_torch", "fused": "adamw_torch_fused"}
REMARKS = {
    "per_device_train_batch_size": "micro_batch",
    "optim": "optimizer_kernel",
    "torch_compile": "compile",
    "activation_checkpointing": "recompute",
    "activation_checkpointing_kwargs.offload": "activation_offload",
    "fsdp_config.reshard_after_forward": "reshard_after_forward",
    "fsdp_config.cpu_offload": "offload",
    f"deepspeed.{ZERO}.stage": "reshard_after_forward",
    f"deepspeed.{TENSOR}.autotp_size": "tp",
    "ddp_bucket_cap_mb": "bucket_cap_mb",
    SYNC: "no_sync",
    "save_steps": "checkpoint_interval",
}
"""Entries, with the setting that each one states; the setting's remark is written beside the entry."""


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The arguments, and a script that starts a training with them."""
    data = arguments(plan)
    remarks, other_notes = placed_notes(data, REMARKS.items(), setting_notes(plan, reasons))
    workload = plan.workload
    trained = "the whole model" if workload.train == "full" else f"adapters of rank {workload.lora_rank}"
    needs = (
        f"{SCRIPT}: your training script, which reads {ARGUMENTS} by HfArgumentParser(TrainingArguments).parse_yaml_file",
        f"model, tokenizer and data: {SCRIPT} loads them, trains {trained}, and has sequences of {workload.seq_len} tokens",
        learning_rate_need(f"learning_rate in {ARGUMENTS}"),
        f"steps: {ARGUMENTS} states neither max_steps nor num_train_epochs, so three epochs are trained",
    )
    header = header_lines(plan)
    config = File(name=ARGUMENTS, text=heading((*header, *other_notes)) + yaml_text(data, remarks))
    command = ("torchrun", *torchrun(plan), SCRIPT, ARGUMENTS)
    start = File(name="train.sh", text=start_script(plan, command, about=header, environment=environment(plan)), runs=True)
    return ExportedFiles(files=(config, start), command=("bash", start.name), needs=needs, user_files=(SCRIPT,))


def kind(plan: Plan) -> str:
    """The sharding framework: none (DDP), DeepSpeed if only it can run the plan (tensor parallelism is its AutoTP), else FSDP2."""
    if runs_on_deepspeed(plan, "hf-trainer"):
        return "deepspeed"
    return "fsdp" if plan.candidate.layout.dp_shard > 1 or plan.candidate.knobs.offload == "all" else "replicas"


def arguments(plan: Plan) -> dict[str, Any]:
    """TrainingArguments that differ from their defaults, or that state a setting of the plan."""
    knobs, options, workload, chosen = plan.candidate.knobs, plan.candidate.options, plan.workload, kind(plan)
    data: dict[str, Any] = {
        "output_dir": "output",
        "per_device_train_batch_size": knobs.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
        "bf16": workload.precision == "bf16",
        "fp16": workload.precision == "fp16",
        "learning_rate": LEARNING_RATE,
        "optim": {"adamw": OPTIM[options.optimizer_kernel], "sgd": "sgd", "adamw8bit": "adamw_torch_8bit"}[workload.optimizer],
        "torch_compile": knobs.compile,
        "save_strategy": "steps",
        "save_steps": options.checkpoint_interval,
    }
    if chosen == "fsdp":
        data |= {"fsdp": True, "fsdp_config": _fsdp(plan)}
    else:
        data["activation_checkpointing"] = knobs.recompute != "none"
        if knobs.recompute != "none":
            layer_interval = 2 if knobs.recompute == "every_second_layer" else 1
            data["activation_checkpointing_kwargs"] = {"every_n_layers": layer_interval, "offload": knobs.activation_offload}
    if chosen == "deepspeed":
        data["deepspeed"] = _deepspeed(plan)
    elif plan.accumulation > 1 and not knobs.no_sync:
        data["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    if chosen == "replicas" and plan.candidate.layout.dp_replicate > 1:
        data |= {
            "ddp_bucket_cap_mb": options.bucket_cap_mb,
            "ddp_static_graph": options.static_graph,
            "ddp_find_unused_parameters": options.find_unused_parameters,
        }
    return data


def _fsdp(plan: Plan) -> dict[str, Any]:
    knobs = plan.candidate.knobs
    return {
        "version": 2,
        "reshard_after_forward": knobs.reshard_after_forward,
        "cpu_offload": knobs.offload == "all",
        "activation_checkpointing": knobs.recompute == "full",
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "cpu_ram_efficient_loading": True,
        "state_dict_type": "SHARDED_STATE_DICT",
    }


def _deepspeed(plan: Plan) -> dict[str, Any]:
    """DeepSpeed's configuration; ``auto`` for values that the trainer fills in."""
    knobs, workload = plan.candidate.knobs, plan.workload
    left_to_trainer = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    found: dict[str, Any] = {**dict.fromkeys(left_to_trainer, "auto"), ZERO: section(plan)}
    if found[ZERO]["stage"] == 3:
        found[ZERO] = {**found[ZERO], GATHERED: True}
    kinds = {"adamw": "AdamW", "sgd": "SGD"}
    found["optimizer"] = {"type": kinds[workload.optimizer], "params": {"lr": "auto", "weight_decay": "auto"}}
    if workload.optimizer == "sgd":
        found["zero_allow_untested_optimizer"] = True
    if plan.candidate.layout.tp > 1:
        found[TENSOR] = tensors(plan)
    if workload.precision != "fp32":
        reduce_dtype = knobs.reduce_dtype if knobs.reduce_dtype == "fp32" else workload.precision
        found |= {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}
        found |= {"data_types": {"grad_accum_dtype": reduce_dtype}, "communication_data_type": reduce_dtype}
    return found
