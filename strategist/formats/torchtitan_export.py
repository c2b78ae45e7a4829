"""A plan as a module of TorchTitan 0.3: a function that goes on from a registered configuration, and the script that starts it."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import NamedTuple

from strategist.contract.environment import environment
from strategist.contract.plan import Plan
from strategist.diagnostic import Diagnostic
from strategist.formats.codes import finding
from strategist.formats.format import File, Written
from strategist.formats.text import heading, remark, script
from strategist.formats.torchtitan_models import Base, base_of
from strategist.formats.torchtitan_words import PARALLEL, SCHEDULES
from strategist.formats.words import about, beside

MODULE, FUNCTION = "titan_plan", "plan"
STAND_IN = Base("llama3", "8B", "llama3_8b", True, ("AdamW",))
"""What a model that TorchTitan does not have begins from, for somebody to replace."""

DTYPES = {"bf16": ("float32", "bfloat16"), "bf16-true": ("bfloat16", "bfloat16"), "fp32": ("float32", "float32")}
"""Types of parameters and of matmuls."""

KERNELS = {"fused": "fused", "foreach": "foreach", "for_loop": "for-loop"}
BALANCERS = {"head_tail": "headtail", "none": None}
POLICIES = {"selective": "SelectiveAC", "full": "FullAC", "budget": "MemoryBudgetAC"}


class Line(NamedTuple):
    """A field, the expression that it is set to, and the setting that it says."""

    field: str
    value: str
    setting: str = ""


def write(plan: Plan, reasons: Mapping[str, str]) -> Written:
    """The module, and a script that starts a training with it."""
    base = base_of(plan.model)
    missing: tuple[Diagnostic, ...] = ()
    if base is None:
        told = f"TorchTitan has no flavour of {plan.model.name}: {MODULE}.py begins from one of another model"
        missing = (finding("FMT-007", told, f"replace {STAND_IN.function} in {MODULE}.py by your own configuration"),)
    module = File(name=f"{MODULE}.py", text=_module(plan, base, reasons))
    nodes, gpus = plan.cluster.nodes, plan.cluster.gpus_per_node
    place = ["--standalone"] if nodes == 1 else [f"--nnodes={nodes}"]
    command = ("torchrun", *place, f"--nproc-per-node={gpus}", "-m", "torchtitan.train")
    lines = [*about(plan), "", f"the settings are in {module.name}; further flags of TorchTitan's may follow {MODULE}'s"]
    if nodes > 1:
        lines.append("on each node: export PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT first")
    arguments = [(("--module", MODULE), ""), (("--config", FUNCTION), "")]
    start = File(name="train.sh", text=script(command, arguments, about=lines, environment=environment(plan)), runs=True)
    return Written(files=(module, start), command=("bash", start.name), findings=missing)


def _module(plan: Plan, base: Base | None, reasons: Mapping[str, str]) -> str:
    begin = base or STAND_IN
    notes = beside(plan, reasons)
    lines = [*_model(base), *_training(plan), *_parallelism(plan), *_kernels(plan, begin)]
    said = {line.setting for line in lines}
    head = [*about(plan), "", *(note for name, note in notes.items() if name not in said)]
    head += ["", "Steps are priced without CUDA graphs, and logits as if they were made at once; TorchTitan makes them in pieces."]
    body = "".join(_statement(line, notes) for line in lines)
    imports = "".join(f"{line}\n" for line in sorted(_imports(plan, base, begin), key=_place))
    start = f"    config = {begin.function}()" + (f"  {remark(f'your configuration of {plan.model.name}')}" if base is None else "")
    return f"{heading(head)}\n{imports}\n\ndef {FUNCTION}() -> Trainer.Config:\n{start}\n{body}    return config\n"


def _statement(line: Line, notes: Mapping[str, str]) -> str:
    note = notes.get(line.setting)
    return f"    config.{line.field} = {line.value}" + (f"  {remark(note)}\n" if note else "\n")


def _imports(plan: Plan, base: Base | None, begin: Base) -> Iterator[str]:
    yield "from torchtitan.config import CompileConfig, ParallelismConfig"
    yield "from torchtitan.trainer import Trainer"
    yield f"from torchtitan.models.{begin.family}.config_registry import {begin.function}"
    if base is not None and not base.exact:
        yield f"from torchtitan.models.{begin.family} import model_registry"
    if plan.candidate.knobs.recompute != "none":
        yield f"from torchtitan.distributed.activation_checkpoint import {POLICIES[plan.candidate.knobs.recompute]}"
    if begin.names != ("AdamW",):
        yield "from torchtitan.components.optimizer import default_adamw"


def _place(line: str) -> str:
    return line.split()[1]


def _model(base: Base | None) -> Iterator[Line]:
    if base is not None and not base.exact:
        yield Line("model_spec", f"model_registry({base.flavour!r})")


def _training(plan: Plan) -> Iterator[Line]:
    candidate, workload = plan.candidate, plan.workload
    micro, pipeline = candidate.knobs.micro_batch, candidate.layout.pp > 1
    weights, computed = DTYPES[workload.precision]
    yield Line("training.seq_len", repr(workload.seq_len))
    local = micro * plan.accumulation if pipeline else micro
    yield Line("training.local_batch_size", repr(local), "" if pipeline else "micro_batch")
    yield Line("training.global_batch_size", repr(workload.global_batch))
    yield Line("training.dtype", repr(weights))
    yield Line("training.mixed_precision_param", repr(computed))
    yield Line("training.enable_cpu_offload", repr(candidate.knobs.offload == "all"), "offload")
    yield Line("training.disable_cuda_graphs", "True")


def _parallelism(plan: Plan) -> Iterator[Line]:
    """All of them, over whatever the registered configuration has."""
    layout, knobs, options = plan.candidate.layout, plan.candidate.knobs, plan.candidate.options
    yield Line("parallelism", "ParallelismConfig()")
    for setting, name in PARALLEL.items():
        if setting != "etp":
            yield Line(name, repr(getattr(layout, setting)), setting)
    if layout.pp > 1:
        words = {ours: theirs for theirs, ours in reversed(SCHEDULES.items())}
        yield Line("parallelism.pipeline_parallel_schedule", repr(words[knobs.pp_schedule]), "pp_schedule")
        yield Line("parallelism.pipeline_parallel_microbatch_size", repr(knobs.micro_batch), "micro_batch")
        yield Line("parallelism.pipeline_parallel_first_stage_less_layers", "0")
        yield Line("parallelism.pipeline_parallel_last_stage_less_layers", "0")
        if knobs.pp_virtual_stages > 2:
            each = ceil(plan.model.layers / (layout.pp * knobs.pp_virtual_stages))
            yield Line("parallelism.pipeline_parallel_layers_per_stage", repr(each), "pp_virtual_stages")
    reshard = "never" if knobs.reshard_after_forward is False else "always" if options.reshard_root else "default"
    yield Line("parallelism.fsdp_reshard_after_forward", repr(reshard), "reshard_after_forward")
    if layout.tp > 1:
        yield Line("parallelism.enable_sequence_parallel", repr(knobs.sequence_parallel), "sequence_parallel")
    if layout.cp > 1:
        balancer = BALANCERS[options.cp_load_balance]
        yield Line("parallelism.context_parallel_load_balancer", repr(balancer), "cp_load_balance")


def _kernels(plan: Plan, begin: Base) -> Iterator[Line]:
    knobs, options = plan.candidate.knobs, plan.candidate.options
    policy = {
        "none": "None", "budget": f"MemoryBudgetAC.Config(memory_budget={knobs.recompute_budget_percent / 100!r})",
    }  # fmt: skip
    how = policy.get(knobs.recompute) or f"{POLICIES[knobs.recompute]}.Config()"
    yield Line("activation_checkpoint", how, "recompute")
    yield Line("compile", f"CompileConfig(enable={knobs.compile!r}, components=['model', 'loss'])", "compile")
    if options.async_tp:
        yield Line("compile.enable_async_tensor_parallel", "True", "async_tp")
    if begin.names != ("AdamW",):
        yield Line("optimizer", "default_adamw()")
    halves = plan.workload.optimizer == "adamw_bf16"
    kernel = "fused_opt_states_bf16" if halves else KERNELS[options.optimizer_kernel]
    yield Line("optimizer.implementation", repr(kernel), "optimizer_kernel")
