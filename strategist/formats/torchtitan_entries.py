"""TorchTitan's configurations of any version and language, as entries with the names of 0.3.

Names of older versions: torchtitan/config_manager.py of 0.0.2 and 0.1.0, torchtitan/config/job_config.py of 0.2.2. The contents
of 0.3.0's registered configurations are in ``profiles/formats/registered/torchtitan.json``, written by
``tests/formats/torchtitan_data.py``.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from strategist.errors import FileError
from strategist.formats.python_config import UNKNOWN, Interpreter, Node, entry_points, plain, read_module
from strategist.formats.referenced_files import find_file
from strategist.formats.source import Entry, Source, load
from strategist.formats.torchtitan_names import LAUNCHER
from strategist.paths import data_dir

CONFIG_FILES = ("job.config_file", "CONFIG_FILE")
"""Flag, and variable of TorchTitan's start script, that name the configuration of 0.2."""

_WORKING_FOLDER = re.compile(r"^\$(?:\(pwd\)|PWD|\{PWD\})/")

POLICIES = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory-budget"}
CHUNKED, CHUNKS = ("ChunkedLossWrapper", "ChunkedLossWrapperWithParamGrads"), 8
"""Losses that compute logits in chunks, and their default number of chunks (components/loss.py)."""

CONVERTERS: Mapping[str, Mapping[str, Any]] = {"Float8LinearConverter": {"recipe_name": "rowwise"}, "LoRAConverter": {"rank": 8}}
"""Fields of a model's converters that are read, with their defaults (components/quantization/float8.py, components/lora.py)."""

FAMILIES = {"kimi_k2_7": "kimi_k2_5"}
"""Families whose name differs from their folder's."""

SCRIPT_VARIABLES = ("MODULE", "CONFIG", "CONFIG_FILE", "NGPU")
"""Variables of TorchTitan's own start script."""

NOTE = "line "
"""Prefix of entries that hold lines that could not be evaluated."""

RENAMED = {
    "activation_checkpoint.mode": "activation_checkpoint",
    "experimental.custom_args_module": "job.custom_config_module",
    "experimental.custom_model_path": "job.custom_config_module",
    "experimental.enable_cpu_offload": "training.enable_cpu_offload",
    "float8.enable_fsdp_float8_all_gather": "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "float8.recipe_name": "quantize.linear.float8.recipe_name",
    "training.batch_size": "training.local_batch_size",
    "training.enable_fp8_linear": "float8.enable_float8_linear",
    "training.enable_float8_linear": "float8.enable_float8_linear",
    "training.sequence_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.compile": "compile.enable",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.enable_loss_parallel": "parallelism.enable_loss_parallel",
    "training.fsdp_reshard_after_forward": "parallelism.fsdp_reshard_after_forward",
    "experimental.pipeline_parallel_split_points": "parallelism.pipeline_parallel_split_points",
}
"""Names of older versions, with their current names."""

MOVED_SECTIONS = ("training", "experimental")
"""Sections of older versions that held entries of ``parallelism``."""

_DEGREE = re.compile(r"(data|tensor|context|pipeline|expert)_parallel\w*|enable_async_tensor_parallel|disable_loss_parallel")
_POLICY = re.compile(r"(?:^|[\s\"'(])activation[-_]checkpoint:([\w-]+)")


@cache
def registered() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Entries of 0.3.0's registered configurations that differ from the defaults, by module and function."""
    path = data_dir("profiles") / "formats" / "registered" / "torchtitan.json"
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def registered_config(module: str, function: str) -> Mapping[str, Any] | None:
    """Entries of a registered configuration, None if it does not exist.

    module: such as ``llama3`` or ``torchtitan.models.llama3.config_registry``.
    """
    name = module.removeprefix("torchtitan.").removeprefix("models.").removeprefix("experiments.").removesuffix(".config_registry")
    return registered().get(name, {}).get(function)


def normalized(source: Source) -> Source:
    """The source with entries under the names of 0.3.

    Raises:
        FileError: a Python file is invalid, or holds several configurations of which none is named.
    """
    if source.language == "python":
        found = _python(source) if not source.entries else list(source.entries.values())
    else:
        found = list(_command(source) if source.language == "command" else map(_renamed, source.entries.values()))
    return replace(source, entries={entry.name: entry for entry in found})


def _renamed(entry: Entry) -> Entry:
    """An entry of any version under its current name."""
    section, _, key = entry.name.partition(".")
    if entry.name in RENAMED:
        return replace(entry, name=RENAMED[entry.name])
    if section in MOVED_SECTIONS and _DEGREE.fullmatch(key):
        return replace(entry, name=f"parallelism.{key}")
    return entry


def _command(source: Source) -> Iterator[Entry]:
    """Flags, over the entries of the configuration that the command names; ``no-`` and hyphens as tyro reads them."""
    entries = {entry.name: entry for entry in map(_flag, source.entries.values())}
    for match in _POLICY.finditer(source.text):
        line = source.text.count("\n", 0, match.start(1)) + 1
        entries["activation_checkpoint"] = Entry(name="activation_checkpoint", value=match[1].replace("_", "-"), line=line)
    module, config = (_command_word(entries, name) for name in ("module", "config"))
    file = config_file(entries)
    base: dict[str, Entry] = {}
    if module and config:
        base = _registered(source, module, config)
    elif file and (path := find_file(source.path, file)):
        base = {name: replace(entry, line=None, column=None) for name, entry in normalized(load(path)).entries.items()}
    yield from (
        entry for entry in {**base, **entries}.values() if not LAUNCHER.fullmatch(entry.name) or entry.name in SCRIPT_VARIABLES
    )


def config_file(entries: Mapping[str, Entry]) -> str:
    """The configuration that a command of TorchTitan 0.2 names; empty if none is named, or it is known only at run time."""
    named = _WORKING_FOLDER.sub("", next((str(entries[key].value) for key in CONFIG_FILES if key in entries), ""))
    return "" if "$" in named else named.split(" ")[0]


def _registered(source: Source, module: str, config: str) -> dict[str, Entry]:
    """Entries of the configuration that a command names, from a file beside the script or from TorchTitan's own."""
    for file in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/config_registry.py"):
        if os.path.isfile(path := Path(source.path).parent / file):
            return {name: replace(entry, line=None) for name, entry in normalized(replace(load(path), part=config)).entries.items()}
    found = registered_config(module, config)
    return {name: Entry(name=name, value=value) for name, value in (found or {}).items()}


def _command_word(entries: Mapping[str, Entry], name: str) -> str:
    """A word of a command line, or of a variable of TorchTitan's start script; empty if it is known only at run time."""
    variable = {"module": "MODULE", "config": "CONFIG"}[name]
    value = next((str(entries[key].value) for key in (name, variable) if key in entries), "")
    return "" if "$" in value else value.split(" ")[0]


def _flag(entry: Entry) -> Entry:
    """A flag under its name in a configuration; subcommands after its value are removed."""
    name = entry.name if entry.name.isupper() else entry.name.replace("-", "_")
    value = entry.value
    if isinstance(value, str):
        value = " ".join(word for word in value.split(" ") if not _POLICY.match(word))
        value = value or True
    section, dot, key = name.rpartition(".")
    if key.startswith("no_") and value is True:
        name, value = f"{section}{dot}{key.removeprefix('no_')}", False
    if name in ("compile.components", "model.converters") and isinstance(value, str):
        value = value.split(",")
    return _renamed(replace(entry, name=name, value=value))


def _python(source: Source) -> list[Entry]:
    """Entries of the configuration that a function returns."""
    module = read_module(source.text, source.path)
    functions = entry_points(module)
    name = source.part or (functions[0] if len(functions) == 1 else "")
    if name not in module.functions:
        known = ", ".join(functions) or "none"
        law = f"has no function {name}" if name else f"holds {len(functions)} configurations: name one, as in FILE.py:FUNCTION"
        raise FileError(source.path, f"{law}; there are: {known}")
    reader = Interpreter(
        known=registered_config, opaque=frozenset({"model_registry", "default_adamw", "decoder_vocab_size"}),
        adapters={"to_graph_trainer_config": _graph_trainer}, names=("training.seq_len",),
    )  # fmt: skip
    try:
        root = reader.run(module, name)
    except RecursionError:
        raise FileError(source.path, "is nested too deeply; write the values out") from None
    notes = [Entry(name=f"{NOTE}{line}", value=text, line=line) for line, text in reader.notes]
    return [*_entries(root, source), *notes]


def _graph_trainer(config: Node) -> Node:
    """The graph trainer's form of a configuration (experiments/graph_trainer/configs.py): own compiler and checkpointing."""
    for name in ("compile", "compile.enable", "compile.components", "compile.enable_async_tensor_parallel"):
        config.fields.pop(name, None)
        config.base.pop(name, None)
    loss = config.fields.get("loss")
    if loss is not None and loss.call == "ChunkedLossWrapper.Config":
        loss.call = "ChunkedLossWrapperWithParamGrads.Config"
    if config.base.get("loss") == "ChunkedLossWrapper":
        config.base["loss"] = "ChunkedLossWrapperWithParamGrads"
    policy = config.fields.get("activation_checkpoint")
    if config.base.get("activation_checkpoint") != "none" and not (policy and not policy.call and policy.value is None):
        config.put("activation_checkpoint", Node(call="SelectiveAC.Config"))
    return config


def _entries(root: Node, source: Source) -> Iterator[Entry]:
    """Entries of a configuration under names of 0.3; a part that is given as a class has the class's name as its value."""
    found = {name: Entry(name=name, value=value) for name, value in root.base.items()}
    for name, node in root.leaves():
        section = name.partition(".")[0]
        if section == "model_spec" and name == section:
            found |= {entry.name: entry for entry in _model(node, source)}
        elif section == "optimizer" and name == section:
            found |= {entry.name: entry for entry in _optimizer(node)}
        elif name == "activation_checkpoint":
            policy = "none" if node.value is None else node.call.removesuffix(".Config")
            found[name] = Entry(name=name, value=POLICIES.get(policy, policy), line=node.line)
        elif name == "loss":
            loss = node.call.removesuffix(".Config")
            found[name] = Entry(name=name, value=loss, line=node.line)
            found["loss.num_chunks"] = Entry(name="loss.num_chunks", value=CHUNKS if loss in CHUNKED else 1, line=node.line)
        elif section not in ("model_spec", "loss", "optimizer") or name in ("loss.num_chunks", "optimizer.implementation"):
            value = plain(node)
            if value is not UNKNOWN and not name.rpartition(".")[2].isdigit():
                found[name] = Entry(name=name, value="none" if value is None else value, line=node.line)
    yield from found.values()


def _model(node: Node, source: Source) -> Iterator[Entry]:
    """Family, flavour and converters of a model, from the call that looks it up."""
    flavour = node.get("0", "flavor")
    if flavour is not None:
        yield Entry(name="model.flavor", value=plain(flavour), line=node.line)
    family = node.origin.removesuffix(".model").rpartition(".")[2] or Path(source.path).resolve().parent.name
    yield Entry(name="model.name", value=FAMILIES.get(family, family), line=node.line)
    converters = node.get("converters")
    converter_nodes = converters.value if converters is not None and isinstance(converters.value, list) else []
    names = [item.call.removesuffix(".Config") for item in converter_nodes]
    yield Entry(name="model.converters", value=names, line=node.line)
    for item, name in zip(converter_nodes, names, strict=True):
        for key, usual in CONVERTERS.get(name, {}).items():
            field = item.get(key)
            yield Entry(name=f"{name}.{key}", value=usual if field is None else plain(field), line=item.line)


def _optimizer(node: Node) -> Iterator[Entry]:
    """Optimizer names of the parameter groups."""
    groups = node.get("param_groups")
    group_nodes = groups.value if groups is not None and isinstance(groups.value, list) else []
    names = [plain(item.fields["optimizer_name"]) for item in group_nodes if "optimizer_name" in item.fields]
    if node.call == "default_adamw":
        names = ["AdamW"]
    yield Entry(name="optimizer.name", value=names, line=node.line)
