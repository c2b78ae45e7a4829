"""Exports a plan as a TorchTitan module: a function that modifies a registered configuration, with a start script.

The module supports 0.3.0, which counts batches in sequences, and versions since 2026-08-20 (commit 73aed7f), which count tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from strategist.contract.environment import environment
from strategist.contract.plan import Plan
from strategist.formats.commented_text import heading, remark
from strategist.formats.export_notes import header_lines, setting_notes
from strategist.formats.format import ExportedFiles, File, Placeholder
from strategist.formats.launch_commands import start_script, torchrun
from strategist.formats.torchtitan_models import Base, base_of
from strategist.formats.torchtitan_names import DTYPES, KERNELS, PARALLEL, SCHEDULES, reshard_word
from strategist.formats.torchtitan_older import older_file
from strategist.profiles.models import hub_name

MODULE, FUNCTION = "titan_plan", "plan"
STAND_IN = Base("llama3", "8B", "llama3_8b", True, ("AdamW",))
"""Placeholder for a model that TorchTitan does not have; the user replaces it."""

BALANCERS = {"head_tail": "headtail", "none": None}
POLICIES = {"selective": "SelectiveAC", "full": "FullAC", "budget": "MemoryBudgetAC"}

DATASET = "c4"
COLUMN_TEXT = "c4_test"
"""Name in both releases for any dataset with a column ``text``; ``c4`` requires one in several languages."""

PLACEHOLDERS = """
TOKENIZER = {tokenizer!r}  # a folder with the model's tokenizer.json and tokenizer_config.json
DATASET = "{dataset}"  # one of torchtitan.hf_datasets.text_datasets.DATASETS
DATASET_PATH = None  # a copy of it on disk; None reads it from the Hub
"""
LATER_DATA = (
    "from torchtitan.components.data import ConcatThenSplitPackingConfig",
    "from torchtitan.hf_datasets.text_datasets import DATASETS",
    "",
    "data = DATASETS[DATASET]",
    "data.source.path = DATASET_PATH or data.source.path",
)


class Line(NamedTuple):
    """An assignment to a field: the field, the expression, and the setting that it states (empty for none)."""

    field: str
    value: str
    setting: str = ""


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The module, and a script that starts a training with it."""
    base = base_of(plan.model)
    tokenizer = f"./assets/hf/{hub_name(plan.model.name).rpartition('/')[2]}"
    module = File(name=f"{MODULE}.py", text=_module(plan, base, tokenizer, reasons))
    older = older_file(plan, base, tokenizer)
    command = ("torchrun", *torchrun(plan), "-m", "torchtitan.train")
    lines = [*header_lines(plan), "", f"the settings are in {module.name}; further flags of TorchTitan's may follow {MODULE}'s"]
    if older:
        lines.append(f"with TorchTitan 0.2 the arguments are: --job.config_file {older[0].name}")
    arguments = [(("--module", MODULE), ""), (("--config", FUNCTION), "")]
    text = start_script(plan, command, arguments, about=lines, environment=environment(plan))
    start = File(name="train.sh", text=text, runs=True)
    other = f"model: TorchTitan has no flavour of {plan.model.name}; {STAND_IN.function} in {module.name} is a placeholder"
    needs = (
        f"tokenizer: TOKENIZER in {module.name} is the placeholder {tokenizer}",
        f"data: DATASET and DATASET_PATH in {module.name} are the placeholders {DATASET} and None",
        f"learning rate and steps: optimizer, lr_scheduler and training.steps of {(base or STAND_IN).function}",
        *CHECKPOINTS,
        *((other,) if base is None else ()),
    )
    files = (module, *older, start)
    return ExportedFiles(files=files, command=("bash", start.name), needs=needs, placeholders=_placeholders(tokenizer, needs))


CHECKPOINTS = (
    "weights: --checkpoint.enable --checkpoint.initial_load_in_hf --checkpoint.initial_load_path=FOLDER; without, they are random",
    "checkpoints: --checkpoint.enable; without it none are written",
)


def _placeholders(tokenizer: str, needs: Sequence[str]) -> tuple[Placeholder, ...]:
    """Placeholders in the module, and in the file for 0.2."""
    return (
        Placeholder(input="tokenizer", text=f"TOKENIZER = {tokenizer!r}", filled='TOKENIZER = "{}"', need=needs[0]),
        Placeholder(input="tokenizer", text=f'hf_assets_path = "{tokenizer}"', filled='hf_assets_path = "{}"'),
        Placeholder(input="data", text=f'DATASET = "{DATASET}"', filled=f'DATASET = "{COLUMN_TEXT}"', need=needs[1]),
        Placeholder(input="data", text="DATASET_PATH = None", filled='DATASET_PATH = "{}"', need=needs[1]),
        Placeholder(
            input="data",
            text=f'dataset = "{DATASET}"\nseq_len',
            filled=f'dataset = "{COLUMN_TEXT}"\ndataset_path = "{{}}"\nseq_len',
        ),
    )


def _module(plan: Plan, base: Base | None, tokenizer: str, reasons: Mapping[str, str]) -> str:
    begin = base or STAND_IN
    notes = setting_notes(plan, reasons)
    lines = [*_model(base), *_training(plan), *_parallelism(plan), *_kernels(plan, begin)]
    sequences, tokens = _batches(plan)
    stated_settings = {line.setting for line in (*lines, *sequences)}
    head = [*header_lines(plan), "", *(note for name, note in notes.items() if name not in stated_settings)]
    head += ["", "Steps are priced without CUDA graphs, and logits in 8 chunks, as 0.3 makes them."]
    body = "".join(f"    {_statement(line, notes)}" for line in (Line("hf_assets_path", "TOKENIZER"), *lines))
    body += "    if hasattr(config.training, 'seq_len'):  # TorchTitan 0.3.0\n"
    body += "".join(f"        {_statement(line, notes)}" for line in sequences)
    body += "    else:  # later ones count a batch in tokens\n"
    body += "".join(f"        {line}".rstrip() + "\n" for line in LATER_DATA) + "".join(
        f"        {_statement(line, notes)}" for line in tokens
    )
    imports = "".join(f"{line}\n" for line in sorted(_imports(plan, base, begin), key=_module_of))
    start = f"    config = {begin.function}()" + (f"  {remark(f'your configuration of {plan.model.name}')}" if base is None else "")
    constants = PLACEHOLDERS.format(tokenizer=tokenizer, dataset=DATASET)
    return f"{heading(head)}\n{imports}\n{constants}\n\ndef {FUNCTION}() -> Trainer.Config:\n{start}\n{body}    return config\n"


def _statement(line: Line, notes: Mapping[str, str]) -> str:
    note = notes.get(line.setting)
    return f"config.{line.field} = {line.value}" + (f"  {remark(note)}\n" if note else "\n")


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


def _module_of(line: str) -> str:
    return line.split()[1]


def _model(base: Base | None) -> Iterator[Line]:
    if base is not None and not base.exact:
        yield Line("model_spec", f"model_registry({base.flavour!r})")


def _training(plan: Plan) -> Iterator[Line]:
    weights, computed = DTYPES[plan.workload.precision]
    yield Line("training.dtype", repr(weights))
    yield Line("training.mixed_precision_param", repr(computed))
    yield Line("training.enable_cpu_offload", repr(plan.candidate.knobs.offload == "all"), "offload")
    yield Line("training.disable_cuda_graphs", "True")


def _batches(plan: Plan) -> tuple[list[Line], list[Line]]:
    """Batches and data, in sequences for 0.3.0 and in tokens for later versions. A pipeline splits the batch of a data rank."""
    micro, length, pipeline = plan.candidate.knobs.micro_batch, plan.workload.seq_len, plan.candidate.layout.pp > 1
    local, global_batch = micro * plan.accumulation if pipeline else micro, plan.workload.global_batch
    sequences = [
        Line("training.seq_len", repr(length)),
        Line("training.local_batch_size", repr(local), "" if pipeline else "micro_batch"),
        Line("training.global_batch_size", repr(global_batch)),
        Line("dataloader.dataset", "DATASET"),
        Line("dataloader.dataset_path", "DATASET_PATH"),
    ]
    tokens = [
        Line("training.max_context_length", repr(length)),
        Line("training.num_tokens_per_microbatch_per_dp_rank", f"{micro} * {length}", "micro_batch"),
        Line("training.num_tokens_per_train_step", f"{global_batch} * {length}"),
        Line("dataloader.dataset", "ConcatThenSplitPackingConfig(dataset=data)"),
    ]
    if pipeline:
        sequences.append(Line("parallelism.pipeline_parallel_microbatch_size", repr(micro), "micro_batch"))
        tokens.append(Line("parallelism.num_pp_microbatches", repr(plan.accumulation)))
    return sequences, tokens


def _parallelism(plan: Plan) -> Iterator[Line]:
    """All fields of ``parallelism``, which override those of the registered configuration."""
    layout, knobs, options = plan.candidate.layout, plan.candidate.knobs, plan.candidate.options
    yield Line("parallelism", "ParallelismConfig()")
    for setting, name in PARALLEL.items():
        if setting != "etp":
            yield Line(name, repr(getattr(layout, setting)), setting)
    if layout.pp > 1:
        words = {schedule: name for name, schedule in reversed(SCHEDULES.items())}
        yield Line("parallelism.pipeline_parallel_schedule", repr(words[knobs.pp_schedule]), "pp_schedule")
        yield Line("parallelism.pipeline_parallel_first_stage_less_layers", "0")
        yield Line("parallelism.pipeline_parallel_last_stage_less_layers", "0")
        if knobs.pp_virtual_stages > 2:
            layers_per_stage = ceil(plan.model.layers / (layout.pp * knobs.pp_virtual_stages))
            yield Line("parallelism.pipeline_parallel_layers_per_stage", repr(layers_per_stage), "pp_virtual_stages")
    yield Line("parallelism.fsdp_reshard_after_forward", repr(reshard_word(plan.candidate)), "reshard_after_forward")
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
    config = policy.get(knobs.recompute) or f"{POLICIES[knobs.recompute]}.Config()"
    yield Line("activation_checkpoint", config, "recompute")
    yield Line("compile", f"CompileConfig(enable={knobs.compile!r}, components=['model', 'loss'])", "compile")
    if options.async_tp:
        yield Line("compile.enable_async_tensor_parallel", "True", "async_tp")
    if begin.names != ("AdamW",):
        yield Line("optimizer", "default_adamw()")
    halves = plan.workload.optimizer == "adamw_bf16"
    kernel = "fused_opt_states_bf16" if halves else KERNELS[options.optimizer_kernel]
    yield Line("optimizer.implementation", repr(kernel), "optimizer_kernel")
