"""A training script in plain PyTorch: torch's own parallel APIs, as the plan has them and nothing else.

The script lies in ``profiles/formats/pytorch/train.py`` with all that it can do; lines between ``# if: NAME`` and ``# end: NAME``
stay where the plan needs them, and imports that nothing uses go.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from strategist.contract.environment import environment
from strategist.contract.knobs import KnobValue
from strategist.contract.model import ModelShape, MoEShape, RopeScaling
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist.formats.entries import Entries
from strategist.formats.format import File, Format, Written
from strategist.formats.found import Found
from strategist.formats.python_tree import python_tree
from strategist.formats.source import Source
from strategist.formats.text import heading, remark, script
from strategist.formats.words import about, beside
from strategist.paths import data_dir

TITLE = "A training script in plain PyTorch"
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved_1f1b": "Interleaved1F1B"}
SETTINGS = (
    "pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "micro_batch", "optimizer_kernel", "reshard_after_forward", "reshard_root",
    "postpone_gradient_sync", "recompute", "saved_operations", "offload", "pin_memory", "sequence_parallel", "loss_parallel",
    "reduce_dtype", "pp_schedule", "pp_virtual_stages", "compile", "fullgraph", "bucket_cap_mb", "gradient_as_bucket_view",
    "static_graph", "pp_split", "cp_attention", "cp_rotate", "cp_load_balance", "grouped_gemm", "token_alignment",
)  # fmt: skip
"""Settings that are constants of the script, in capitals."""

UNUSED = ("model", "ffn_size", "balance_coefficient", "pp_split", "cp_attention", "grouped_gemm")
"""Constants that nothing in the script asks for: they say which script it is."""

WORKLOAD = ("seq_len", "precision", "optimizer", "lora_rank")
SHAPE = (
    "layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size", "vocab_size", "rope_theta", "norm_epsilon",
    "tied_embeddings", "qkv_bias", "qk_norm", "rope_scaling",
)  # fmt: skip
"""Fields of the model that are constants."""


EXPERTS = tuple(item.name for item in fields(MoEShape))
"""Those of a mixture of experts."""


def recognises(source: Source) -> bool:
    """A script of ours, by its first constant."""
    return source.language == "python" and re.search(r"^MODEL = ", source.text, re.MULTILINE) is not None


def read(entries: Entries) -> Found:
    """What the constants of a script say."""
    constants = _constants(entries.source)
    settings: dict[str, KnobValue] = {name: constants[name.upper()] for name in SETTINGS if name.upper() in constants}
    if "pp_schedule" in settings:
        settings["pp_schedule"] = {theirs: ours for ours, theirs in SCHEDULES.items()}[str(settings["pp_schedule"])]
    if not isinstance(size := settings.get("reshard_after_forward", True), bool):
        settings |= {"reshard_after_forward": "subgroup", "reshard_group_size": size}
    if settings.get("cp", 1) != 1:
        settings["cp_restore_buffers"] = False
    shape = {name: constants[name.upper()] for name in SHAPE if name.upper() in constants}
    if shape.get("rope_scaling") is not None:
        shape["rope_scaling"] = RopeScaling(**shape["rope_scaling"])
    workload = {name: constants[name.upper()] for name in WORKLOAD if name.upper() in constants}
    if "EXPERTS" in constants:
        moe = {name: constants[name.upper()] for name in EXPERTS if name.upper() in constants}
        shape["moe"] = MoEShape(**moe)
    return Found(
        settings=settings,
        workload={"train": "lora" if "LORA_RANK" in constants else "full", **workload},
        model=ModelShape(name=str(constants["MODEL"]), **shape),
        accumulation=constants.get("ACCUMULATION", 1),
    )


def _constants(source: Source) -> dict[str, Any]:
    """Names in capitals that a script sets to plain values.

    Raises:
        FileError: the script is no Python, or lacks what says which model it trains.
    """
    found: dict[str, Any] = {}
    for node in python_tree(source.text, source.path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
    needed = ("MODEL", *(name.upper() for name in SHAPE[:7]))
    if missing := next((name for name in needed if name not in found), ""):
        raise FileError(source.path, f"{missing} is missing: a script that strategist export wrote has it; export it again")
    return found


def write(plan: Plan, reasons: Mapping[str, str]) -> Written:
    """The script, and one that starts it with torchrun."""
    imports, body = _script(_conditions(plan))
    text = "\n".join([heading(about(plan)), imports, *_spelled(_values(plan), body, beside(plan, reasons)), "", body])
    nodes = plan.cluster.nodes
    rendezvous = ("--standalone",) if nodes == 1 else (f"--nnodes={nodes}", "--rdzv-backend=c10d")
    command = ("torchrun", *rendezvous, f"--nproc-per-node={plan.cluster.gpus_per_node}")
    said = (*about(plan), *(() if nodes == 1 else ("on each node: ./train.sh, with RDZV_ENDPOINT=HOST:PORT of one of them",)))
    arguments = [(("train.py",), "")]
    start = script(command, arguments, about=said, environment=environment(plan))
    if nodes > 1:
        start = start.replace("exec torchrun", 'exec torchrun --rdzv-endpoint="${RDZV_ENDPOINT:?HOST:PORT of one node}"', 1)
    files = (File(name="train.py", text=text), File(name="train.sh", text=start, runs=True))
    return Written(files=files, command=("bash", "train.sh"))


def _script(conditions: frozenset[str]) -> tuple[str, str]:
    """The script's imports, and what stands below its constants."""
    text = (data_dir("profiles") / "formats" / "pytorch" / "train.py").read_text(encoding="utf-8")
    imports, _, rest = text.partition("# constants: begin\n")
    body = _kept(rest.partition("# constants: end\n")[2], conditions)
    body = re.sub(r"\n{4,}", "\n\n\n", body.strip("\n") + "\n")
    return _pruned(imports, body), body


def _conditions(plan: Plan) -> frozenset[str]:
    """Names of the parts that the plan needs."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    fsdp = layout.fsdp_ranks > 1 or layout.tp > 1 or (layout.pp > 1 and layout.dp_replicate > 1) or knobs.offload == "all"
    ddp = not fsdp and layout.dp_replicate > 1
    gathers = layout.cp > 1 and plan.candidate.options.cp_attention == "flex"
    known = {
        "pp": layout.pp > 1, "tp": layout.tp > 1, "fsdp": fsdp, "ddp": ddp, "accumulates": plan.accumulation > 1,
        "cp": layout.cp > 1, "gathers": gathers, "ring": layout.cp > 1 and not gathers,
        "recompute": knobs.recompute != "none", "selective": knobs.recompute == "selective", "compile": knobs.compile,
        "tied": plan.model.tied_embeddings, "qk_norm": plan.model.qk_norm, "rope_scaling": plan.model.rope_scaling is not None,
        "cuda": plan.cluster.device.kind == "cuda", "fp16": plan.workload.precision == "fp16",
        "lora": plan.workload.train == "lora", "feed_forward": True, **_of_experts(plan.model.moe, plan),
    }  # fmt: skip
    return frozenset(name for name, holds in known.items() if holds)


def _of_experts(moe: MoEShape | None, plan: Plan) -> dict[str, bool]:
    """The parts that a model with experts needs."""
    if moe is None:
        return {}
    layout, balance = plan.candidate.layout, moe.balance_coefficient > 0
    shared_sequences = balance and layout.cp * layout.tp > 1
    return {
        "moe": True, "ep": layout.ep > 1, "apart": layout.ep * layout.tp > 1, "grouped": plan.candidate.options.grouped_gemm,
        "balance": balance, "shared_sequences": shared_sequences, "dealt": layout.ep > 1 or shared_sequences,
        "dense_first": moe.first_dense_layers > 0, "shared": moe.shared_experts > 0,
        "feed_forward": moe.shared_experts + moe.first_dense_layers > 0,
        "groups": moe.router_groups > 1 or moe.router_balance_bias, "balance_bias": moe.router_balance_bias,
        "scaled": moe.routed_scale != 1,
    }  # fmt: skip


_IF, _END = re.compile(r"\s*# if: (.+)"), re.compile(r"\s*# end: ")


def _kept(text: str, conditions: frozenset[str]) -> str:
    """The lines of a text whose conditions hold."""
    holding: list[bool] = []
    lines = []
    for line in text.splitlines():
        if match := _IF.fullmatch(line):
            holding.append(all(_holds(name, conditions) for name in match[1].split(" and ")))
        elif _END.match(line):
            holding.pop()
        elif all(holding):
            lines.append(line)
    return "\n".join(lines)


def _holds(name: str, conditions: frozenset[str]) -> bool:
    return (name.removeprefix("not ") in conditions) != name.startswith("not ")


def _pruned(imports: str, body: str) -> str:
    """The imports that the body uses."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    lines = imports.splitlines()
    for node in reversed(ast.parse(imports).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines[node.lineno - 1 : node.end_lineno] = _import(node, used)
    return "\n".join(lines).strip("\n") + "\n"


def _import(node: ast.Import | ast.ImportFrom, used: set[str]) -> list[str]:
    """The import of what is used, in lines that are not too long."""
    node.names = [name for name in node.names if (name.asname or name.name).partition(".")[0] in used]
    if not node.names:
        return []
    line = ast.unparse(node)
    if len(line) <= 110 or not isinstance(node, ast.ImportFrom):
        return [line]
    return [f"from {node.module} import (", *(f"    {ast.unparse(name)}," for name in node.names), ")"]


def _values(plan: Plan) -> dict[str, Any]:
    """All constants by name, in the order in which they stand."""
    candidate = plan.candidate
    values: dict[str, Any] = {name: _setting(plan, name) for name in SETTINGS}
    values["accumulation"] = plan.accumulation
    values["pp_layers"] = plan.stage_layers
    if candidate.knobs.reshard_after_forward == "subgroup":
        values["reshard_after_forward"] = candidate.knobs.reshard_group_size
    values["pp_schedule"] = SCHEDULES.get(
        candidate.knobs.pp_schedule, "Interleaved1F1B" if candidate.knobs.pp_virtual_stages > 1 else "1F1B"
    )
    if candidate.layout.pp == 1:
        del values["pp_split"]
    if candidate.layout.cp == 1:
        del values["cp_attention"]
    if plan.model.moe is None:
        del values["grouped_gemm"]
    scaling = plan.model.rope_scaling
    shape = {name: getattr(plan.model, name) for name in SHAPE} | {"rope_scaling": None if scaling is None else asdict(scaling)}
    shape |= {} if plan.model.moe is None else asdict(plan.model.moe)
    workload = {name: getattr(plan.workload, name) for name in WORKLOAD}
    return {"model": plan.model.name, **shape, **workload, **values, "device": plan.cluster.device.kind}


def _setting(plan: Plan, name: str) -> KnobValue:
    candidate = plan.candidate
    part = next(part for part in (candidate.layout, candidate.knobs, candidate.options) if hasattr(part, name))
    value: KnobValue = getattr(part, name)
    return value


def _spelled(values: Mapping[str, Any], body: str, notes: Mapping[str, str]) -> Iterator[str]:
    """Lines of the constants that the script uses, each with the reason of its setting."""
    for name, value in values.items():
        if name in UNUSED or re.search(rf"\b{name.upper()}\b", body):
            note = f"  {remark(notes[name])}" if name in notes and name in SETTINGS else ""
            yield f"{name.upper()} = {_literal(value) if isinstance(value, str) else repr(value)}{note}"


FORMAT = Format(name="pytorch", title=TITLE, recognises=recognises, read=read, write=write)


def _literal(text: str) -> str:
    """A text as Python has it; JSON would write a letter beyond U+FFFF as two."""
    return json.dumps(text, ensure_ascii=False).encode("ascii", "backslashreplace").decode()
