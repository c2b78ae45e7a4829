"""Training script in plain PyTorch, with torch's own parallel APIs as far as a plan needs them.

``plan.py`` holds the plan as constants, each with its reason; ``pytorch_blocks`` assembles the other files. A plan is read back
from the constants.
"""

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from strategist.contract.environment import environment
from strategist.contract.hugging_face_config import config_of, model_type_of
from strategist.contract.knobs import Candidate, Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.loss import chunk_tokens
from strategist.contract.measurement import LEARNING_RATE, TrialSettings
from strategist.contract.model import ModelShape, MoEShape, RopeScaling
from strategist.contract.plan import Plan
from strategist.contract.sac_policy import matmul_stride, saves_collectives
from strategist.contract.settings import value_of
from strategist.errors import FileError, InputError
from strategist.formats.commented_text import heading, json_text, remark
from strategist.formats.config_entries import Entries
from strategist.formats.export_notes import header_lines
from strategist.formats.format import ExportedFiles, File, Format, Placeholder
from strategist.formats.launch_commands import start_script, torchrun
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.python_tree import python_tree
from strategist.formats.pytorch_blocks import FILES, assemble
from strategist.formats.source import Source, load

TITLE = "A training script in plain PyTorch"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""torch's names."""

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved_1f1b": "Interleaved1F1B"}
SETTINGS = (
    "pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "micro_batch", "optimizer_kernel", "reshard_after_forward", "reshard_root",
    "layers_per_unit", "no_sync", "recompute", "saved_operations", "offload", "pin_memory", "sequence_parallel", "loss_parallel",
    "reduce_dtype", "pp_schedule", "pp_virtual_stages", "compile", "fullgraph", "bucket_cap_mb", "gradient_as_bucket_view",
    "static_graph", "pp_split", "cp_attention", "cp_rotate", "cp_load_balance", "grouped_gemm", "token_alignment", "checkpoint",
    "checkpoint_interval", "chunked_loss",
)  # fmt: skip
"""Settings that are constants of ``plan.py``, in capitals."""

DEGREES = SETTINGS[:6]
"""Degrees of parallelism; those that are 1 have no constant, unless the code uses it."""

DEFAULTS = {name: value_of(Candidate(layout=Layout(), knobs=Knobs()), name) for name in SETTINGS}
"""Values that a setting without a constant has."""

WORKLOAD_FIELDS = ("seq_len", "precision", "optimizer", "train", "lora_rank")
MODEL_FIELDS = (
    "layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size", "vocab_size", "rope_theta", "norm_epsilon",
    "tied_embeddings", "qkv_bias", "qk_norm", "rope_scaling",
)  # fmt: skip
"""Fields of the model that are constants."""

MOE_FIELDS = tuple(item.name for item in fields(MoEShape))
"""Fields of the model's mixture of experts that are constants."""

ROPE_SCALING_FIELDS = ("kind", "factor", "original_positions", "low_frequency", "high_frequency")
"""Fields of RoPE scaling that the script needs."""

WEIGHT_DECAY = 0.01
"""The value of ``strategist_runtime.optimizers.optimizer``; a test compares them."""

NEEDS = (
    "data: --data with token ids; without it the text is synthetic",
    "weights: --weights with a folder of Hugging Face's; without it they are random",
)
STEPS = (
    f"learning rate, steps and checkpoints: LEARNING_RATE in plan.py is {LEARNING_RATE} at every step; without "
    "--steps and --save FOLDER 10 steps are trained, and nothing is kept"
)
"""What the script's own defaults leave open, as a line of the missing."""

FIXED = "Settings that determined the code of the other files; to change one, plan and export again."


_FIRST_CONSTANT = re.compile(r"^MODEL = ", re.MULTILINE)
_PLAN_IMPORT = re.compile(r"^from plan import (?:\(\s*)?[A-Z_]{2,}\b", re.MULTILINE)
"""Pattern of the script's other files, which take their settings from ``plan.py``."""


def recognises(source: Source) -> bool:
    """Whether a source belongs to an exported script: ``plan.py``, by its first constant, or a file that takes settings from it."""
    patterns = (_FIRST_CONSTANT, _PLAN_IMPORT)
    return source.language == "python" and any(pattern.search(source.text) for pattern in patterns)


def opened(source: Source) -> Source:
    """The file with the constants, in the folder of the script's other files.

    Raises:
        FileError: it does not exist.
    """
    if source.language == "python" and _FIRST_CONSTANT.search(source.text):
        return source
    constants = Path(source.path).with_name("plan.py")
    if not os.path.isfile(constants):
        raise FileError(source.path, f"takes its settings from {constants}, which is not there; put it beside this file")
    return load(constants)


def read(entries: Entries) -> ParsedConfig:
    """Settings that a script's constants state."""
    constants = _constants(entries.source)
    settings: dict[str, KnobValue] = {name: constants[name.upper()] for name in SETTINGS if name.upper() in constants}
    precisions = {torch_name: name for name, torch_name in DTYPES.items()}
    if "reduce_dtype" in settings:
        settings["reduce_dtype"] = precisions[str(settings["reduce_dtype"])]
    if "pp_schedule" in settings:
        schedules = {torch_name: name for name, torch_name in SCHEDULES.items()}
        settings["pp_schedule"] = schedules[str(settings["pp_schedule"])]
    if not isinstance(size := settings.get("reshard_after_forward", True), bool):
        settings |= {"reshard_after_forward": "subgroup", "reshard_group_size": size}
    if settings.get("cp", 1) != 1:
        settings["cp_restore_buffers"] = False
    shape = {name: constants[name.upper()] for name in MODEL_FIELDS if name.upper() in constants}
    if shape.get("rope_scaling") is not None:
        shape["rope_scaling"] = RopeScaling(**shape["rope_scaling"])
    workload = {name: constants[name.upper()] for name in WORKLOAD_FIELDS if name.upper() in constants}
    workload["precision"] = precisions[workload["precision"]]
    if "EXPERTS" in constants:
        moe = {name: constants[name.upper()] for name in MOE_FIELDS if name.upper() in constants}
        shape["moe"] = MoEShape(**moe)
    return ParsedConfig(
        settings=settings,
        workload={"train": "full", **workload},
        model=ModelShape(name=str(constants["MODEL"]), **shape),
        accumulation=constants.get("ACCUMULATION", 1),
    )


def _constants(source: Source) -> dict[str, Any]:
    """Constants of a script (names in capitals) with literal values.

    Raises:
        FileError: the script is not Python, or lacks a constant of its model.
    """
    found: dict[str, Any] = {}
    for node in python_tree(source.text, source.path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
    needed = ("MODEL", *(name.upper() for name in MODEL_FIELDS[:7]))
    if missing := next((name for name in needed if name not in found), ""):
        raise FileError(source.path, f"{missing} is missing: a script that strategist export wrote has it; export it again")
    return found


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The files of the script, ``plan.py`` first, and a script that starts it with torchrun."""
    values = _constant_values(plan)
    texts, used = assemble(conditions(plan), {name.upper() for name in values})
    files = [File(name="plan.py", text=_plan_text(plan, values, used, reasons))]
    files += [File(name=f"{name}.py", text=texts[name]) for name in reversed(list(FILES))]
    if has_hugging_face_type(plan.model):
        files.append(File(name="config.json", text=json_text(config_of(plan.model, plan.workload.seq_len, "float32"))))
    inputs = NEEDS if has_hugging_face_type(plan.model) else NEEDS[:1]
    placeholders = tuple(
        Placeholder(input=need.partition(":")[0], text=' "$@"\n', filled=f' --{need.partition(":")[0]}={{}} "$@"\n', need=need)
        for need in inputs
    )
    command = ("torchrun", *torchrun(plan), "train.py")
    start = start_script(plan, command, about=header_lines(plan), environment=environment(plan))
    return ExportedFiles(
        files=(*files, File(name="train.sh", text=start, runs=True)),
        command=("bash", "train.sh"),
        needs=(*inputs, STEPS),
        placeholders=placeholders,
    )


def conditions(plan: Plan) -> frozenset[str]:
    """Names of the conditions that hold for a plan; they select blocks and lines of the script."""
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    fsdp = layout.fsdp_ranks > 1 or layout.tp > 1 or (layout.pp > 1 and layout.dp_replicate > 1) or knobs.offload == "all"
    several_meshes = layout.ep > 1 or (layout.tp > 1 and (plan.model.moe is not None or not knobs.sequence_parallel))
    layer_units = fsdp and plan.candidate.options.layers_per_unit > 1
    cp_gathered = layout.cp > 1 and plan.candidate.options.cp_attention == "flex"
    holds_by_name = {
        "pp": layout.pp > 1, "tp": layout.tp > 1, "cp": layout.cp > 1,
        "cp_gathered": cp_gathered, "cp_ring": layout.cp > 1 and not cp_gathered,
        "cp_in_order": plan.candidate.options.cp_load_balance == "none",
        "fsdp": fsdp, "ddp": not fsdp and layout.dp_replicate > 1, "meshes": fsdp or layout.pp > 1,
        "buckets": plan.candidate.options.static_graph or plan.candidate.options.bucket_cap_mb != DEFAULTS["bucket_cap_mb"],
        "hsdp": fsdp and layout.dp_replicate > 1, "several_meshes": several_meshes,
        "clip_grad_norm": layout.pp == 1 and not several_meshes and workload.precision != "fp16",
        "sequence_parallel": knobs.sequence_parallel, "virtual": layout.pp > 1 and knobs.pp_virtual_stages > 1,
        "loss_parallel": knobs.loss_parallel, "step_context": knobs.loss_parallel or (layout.cp > 1 and not cp_gathered),
        "chunked_loss": knobs.chunked_loss,
        "fp32": workload.precision == "fp32", "fp16": workload.precision == "fp16", "sgd": workload.optimizer == "sgd",
        "fused": plan.candidate.options.optimizer_kernel == "fused", "offload": knobs.offload == "all",
        "gpipe": knobs.pp_schedule == "gpipe", "qkv_bias": plan.model.qkv_bias,
        "zeros": plan.model.qkv_bias or plan.model.moe is not None,
        "fills": plan.model.tied_embeddings or (plan.model.moe is not None and plan.model.moe.router_balance_bias),
        "accumulates": plan.accumulation > 1 and knobs.no_sync and (fsdp or layout.dp_replicate > 1), "compile": knobs.compile,
        "one_micro_batch": layout.pp == 1 and plan.accumulation == 1, "units": layer_units, "sharded": fsdp and not layer_units,
        "compiles_first": knobs.compile and (not fsdp or layer_units),
        "prepares_first": (knobs.compile or knobs.recompute not in ("none", "every_second_layer")) and (not fsdp or layer_units),
        "lora": workload.train != "full", "qlora": workload.train == "qlora",
        "tied": plan.model.tied_embeddings, "qk_norm": plan.model.qk_norm,
        "rope_scaling": plan.model.rope_scaling is not None, "cuda": plan.cluster.device.kind == "cuda", "feed_forward": True,
        "async": plan.candidate.options.checkpoint != "sync",
        "pinned": plan.candidate.options.checkpoint == "async_pinned",
        "hugging_face": has_hugging_face_type(plan.model),
        "reads_matrices": workload.train == "qlora" and has_hugging_face_type(plan.model),
        **_recompute_conditions(knobs), **_expert_conditions(plan),
    }  # fmt: skip
    return frozenset(name for name, holds in holds_by_name.items() if holds)


def _recompute_conditions(knobs: Knobs) -> dict[str, bool]:
    """The conditions of what activation checkpointing saves."""
    selective, stride = knobs.recompute == "selective", matmul_stride(knobs.saved_operations)
    return {
        "recompute": knobs.recompute != "none", "every_second_layer": knobs.recompute == "every_second_layer",
        "selective": selective, "saves_matmuls": selective and stride > 0, "every_second_matmul": selective and stride == 2,
        "saves_collectives": selective and saves_collectives(knobs.saved_operations),
    }  # fmt: skip


def _expert_conditions(plan: Plan) -> dict[str, bool]:
    """Conditions of a model with experts."""
    moe, layout = plan.model.moe, plan.candidate.layout
    if moe is None:
        return {}
    balance = moe.balance_coefficient > 0
    shared_sequences = balance and layout.cp * layout.tp > 1
    return {
        "moe": True, "ep": layout.ep > 1, "expert_mesh": layout.ep * layout.tp > 1,
        "rescaled": layout.ep * layout.tp > 1 and plan.workload.train == "full",
        "grouped": plan.candidate.options.grouped_gemm,
        "balance": balance, "shared_sequences": shared_sequences,
        "dense_first": moe.first_dense_layers > 0,
        "lists_mixtures": moe.first_dense_layers > 0 or plan.candidate.options.layers_per_unit > 1,
        "shared": moe.shared_experts > 0,
        "feed_forward": moe.shared_experts + moe.first_dense_layers > 0, "groups": moe.router_groups > 1,
        "balance_bias": moe.router_balance_bias, "chooses": moe.router_balance_bias or moe.router_groups > 1,
        "sigmoid": moe.router_score == "sigmoid", "normalised": moe.router_normalised,
        "router_bias": moe.router_parameter_bias, "scaled": moe.routed_scale != 1, "mixtral": not plan.model.qk_norm,
    }  # fmt: skip


def has_hugging_face_type(model: ModelShape) -> bool:
    """Whether a Hugging Face model type computes the same as this model."""
    moe = model.moe
    if moe is not None and (moe.shared_experts or moe.first_dense_layers or moe.router_parameter_bias or moe.router_groups > 1):
        return False
    try:
        return bool(model_type_of(model))
    except InputError:
        return False


def _constant_values(plan: Plan) -> dict[str, Any]:
    """All constants by name, in the order of ``plan.py``."""
    knobs, scaling, defaults = plan.candidate.knobs, plan.model.rope_scaling, TrialSettings()
    shape = {name: value for name in MODEL_FIELDS if (value := getattr(plan.model, name))}
    shape |= {} if scaling is None else {"rope_scaling": {name: getattr(scaling, name) for name in ROPE_SCALING_FIELDS}}
    shape |= {} if plan.model.moe is None else asdict(plan.model.moe)
    workload = {name: getattr(plan.workload, name) for name in WORKLOAD_FIELDS}
    values: dict[str, Any] = {name: value_of(plan.candidate, name) for name in SETTINGS}
    if knobs.reshard_after_forward == "subgroup":
        values["reshard_after_forward"] = knobs.reshard_group_size
    values["pp_schedule"] = SCHEDULES.get(knobs.pp_schedule, "Interleaved1F1B" if knobs.pp_virtual_stages > 1 else "1F1B")
    values["reduce_dtype"], workload["precision"] = DTYPES[knobs.reduce_dtype], DTYPES[plan.workload.precision]
    run = {"learning_rate": defaults.learning_rate, "weight_decay": WEIGHT_DECAY, "clip_norm": defaults.clip_norm}
    run |= {"lora_alpha": defaults.lora_alpha, "seed": defaults.seed}
    derived = {
        "global_batch": plan.workload.global_batch,
        "accumulation": plan.accumulation,
        "mesh": _mesh(plan),
        "expert_mesh": _expert_mesh(plan),
        "pp_layers": plan.stage_layers,
        "chunk_tokens": chunk_tokens(plan.model.hidden_size),
    }
    return {"model": plan.model.name, **shape, **workload, **run, **values, **derived}


def _mesh(plan: Plan) -> dict[str, int]:
    """Sizes of the mesh axes, slowest links first."""
    layout, fsdp = plan.candidate.layout, "fsdp" in conditions(plan)
    axes = {name: getattr(layout, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
    return {name: size for name, size in axes.items() if size > 1 or (fsdp and name == "dp_shard")}


def _expert_mesh(plan: Plan) -> dict[str, int]:
    """Sizes of the axes of the experts' mesh: ``experts`` are ranks that hold shards of the same ones."""
    layout = plan.candidate.layout
    experts = layout.dp_shard * layout.cp * layout.tp // layout.ep
    axes = {"pp": layout.pp, "dp_replicate": layout.dp_replicate, "experts": experts, "ep": layout.ep}
    return {name: size for name, size in axes.items() if size > 1 or name == "experts"}


def _plan_text(plan: Plan, values: Mapping[str, Any], used: set[str], reasons: Mapping[str, str]) -> str:
    """``plan.py``: constants that the other files use, then those that selected the code, each setting with its reason."""
    always_written = {"model", *MODEL_FIELDS, *WORKLOAD_FIELDS, *_changed_moe_fields(values)}
    if plan.workload.train == "full":
        always_written -= {"train", "lora_rank"}
    chosen_settings = {
        name
        for name in SETTINGS
        if plan.matters(name) and (values[name] != DEFAULTS[name] or (name in reasons and name not in DEGREES))
    }
    used_names = [name for name in values if name.upper() in used]
    fixed_names = [name for name in values if name not in used_names and name in always_written | chosen_settings]

    def lines(names: Sequence[str]) -> Iterator[str]:
        for name in names:
            note = f"  {remark(reasons[name])}" if name in reasons and name in SETTINGS else ""
            yield f"{name.upper()} = {_python_literal(values[name]) if isinstance(values[name], str) else repr(values[name])}{note}"

    return "\n".join([heading(header_lines(plan)), *lines(used_names), "", f"# {FIXED}", *lines(fixed_names), ""])


def _changed_moe_fields(values: Mapping[str, Any]) -> set[str]:
    """Fields of a mixture of experts whose value is not the usual one, which a missing constant has when it is read."""
    return {item.name for item in fields(MoEShape) if item.name in values and values[item.name] != item.default}


def _python_literal(text: str) -> str:
    """A text as a literal of Python; JSON would write a character beyond U+FFFF as two."""
    return json.dumps(text, ensure_ascii=False).encode("ascii", "backslashreplace").decode()


FORMAT = Format(name="pytorch", title=TITLE, recognises=recognises, read=read, write=write, opened=opened)
