"""Exports a plan as DeepSpeed's JSON configuration, with a start script."""

from collections.abc import Mapping
from typing import Any

from strategist.contract.environment import environment
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.formats.commented_text import Shell, json_text
from strategist.formats.export_notes import header_lines, learning_rate_need, setting_notes
from strategist.formats.format import ExportedFiles, File
from strategist.formats.launch_commands import MASTER_ADDR, MASTER_PORT, NODE_RANK, start_script
from strategist.programs.backends import load_backend
from strategist.search.facts import plan_facts

ZERO, TENSOR, CHECKPOINTING = "zero_optimization", "tensor_parallel", "activation_checkpointing"
STAGE = f"{ZERO}.stage"
CONFIG, HOSTS, SCRIPT = "ds_config.json", "hostfile", "train.py"
STACK = "deepspeed"
"""The stack of plans that DeepSpeed runs, also inside another trainer: parameters, states and reductions are DeepSpeed's."""

TYPES = {"adamw": "AdamW", "sgd": "SGD", "muon": "Muon"}
ADDED = ("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer")
"""Flags that ZeRO requires for an optimizer that is not DeepSpeed's own (runtime/zero/utils.py)."""

NEEDS = (
    "train.py: your training script, which calls deepspeed.initialize with the arguments of train.sh",
    "model, tokenizer and data: train.py loads them",
    learning_rate_need(f"optimizer.params.lr in {CONFIG}"),
)
RECOMPUTES = "recomputation: the model calls deepspeed.checkpointing.checkpoint, or gradient_checkpointing_enable of transformers"


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The configuration, and a script that starts a training with it.

    On several nodes DeepSpeed's launcher runs on each node without SSH (launcher/runner.py, --no_ssh). It counts the nodes in a
    hostfile, whose host names are placeholders.
    """
    config = File(name=CONFIG, text=json_text(configuration(plan)))
    nodes, gpus = plan.cluster.nodes, plan.cluster.gpus_per_node
    needs = (*NEEDS, RECOMPUTES) if plan.candidate.knobs.recompute == "full" else NEEDS
    files, launch_options = [config], [f"--num_nodes={nodes}", f"--num_gpus={gpus}"]
    if nodes > 1:
        files.append(File(name=HOSTS, text="".join(f"node-{number} slots={gpus}\n" for number in range(nodes))))
        rendezvous = (f"--node_rank={NODE_RANK}", f"--master_addr={MASTER_ADDR}", f"--master_port={MASTER_PORT}")
        launch_options = ["--no_ssh", f"--hostfile={HOSTS}", *map(Shell, rendezvous)]
    lines = (*header_lines(plan), "", *setting_notes(plan, reasons).values())
    command = ("deepspeed", *launch_options, SCRIPT, "--deepspeed", "--deepspeed_config", config.name)
    start = File(name="train.sh", text=start_script(plan, command, about=lines, environment=environment(plan)), runs=True)
    return ExportedFiles(files=(*files, start), command=("bash", start.name), needs=needs, user_files=(SCRIPT,))


def runs_on_deepspeed(plan: Plan, backend: str) -> bool:
    """Whether DeepSpeed runs a plan that is exported to ``backend``, a trainer or launcher which runs other plans without it."""
    return load_backend(backend).stack_for(plan_facts(plan)) == STACK


def configuration(plan: Plan) -> dict[str, Any]:
    """The whole configuration. With AutoTP it has no train_batch_size, which would count ranks that read the same sequences."""
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    config: dict[str, Any] = {"train_batch_size": workload.global_batch} if layout.tp == 1 else {}
    config |= {
        "train_micro_batch_size_per_gpu": knobs.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
        ZERO: section(plan),
        "optimizer": {"type": TYPES[workload.optimizer], "params": {"lr": LEARNING_RATE}},
    }
    if workload.optimizer == "sgd":
        config["zero_allow_untested_optimizer"] = True
    if workload.compute_dtype in ("bf16", "fp16"):
        reduce_dtype = knobs.reduce_dtype if knobs.reduce_dtype == "fp32" else workload.compute_dtype
        config[workload.compute_dtype] = {"enabled": True}
        config["data_types"] = {"grad_accum_dtype": reduce_dtype}
        config["communication_data_type"] = reduce_dtype
    if layout.tp > 1:
        config[TENSOR] = tensors(plan)
    if knobs.recompute == "full":
        config[CHECKPOINTING] = {"partition_activations": False, "cpu_checkpointing": knobs.activation_offload}
    return config


def tensors(plan: Plan) -> dict[str, Any]:
    """The section of tensor parallelism (AutoTP)."""
    return {"autotp_size": plan.candidate.layout.tp, "vocab_parallel_lm_head": plan.candidate.knobs.loss_parallel}


def section(plan: Plan) -> dict[str, Any]:
    """The section of ZeRO: its stage and offloads."""
    knobs = plan.candidate.knobs
    found: dict[str, Any] = {"stage": stage(plan)}
    if knobs.reshard_after_forward == "subgroup":
        found["zero_hpz_partition_size"] = knobs.reshard_group_size
    device_options = {"device": "cpu", "pin_memory": plan.candidate.options.pin_memory}
    if knobs.offload in ("optimizer", "all"):
        found["offload_optimizer"] = device_options
    if knobs.offload == "all":
        found["offload_param"] = device_options
    return found


def stage(plan: Plan) -> int:
    """The ZeRO stage of a plan; a single data rank has one as well, because it can offload."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    if layout.dp_replicate > 1:
        return 0
    if knobs.offload == "all" or (layout.dp_shard > 1 and knobs.reshard_after_forward is not False):
        return 3
    return 1 if knobs.no_sync and plan.accumulation > 1 else 2
