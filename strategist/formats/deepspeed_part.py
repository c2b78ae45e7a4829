"""DeepSpeed's configuration inside other systems' files: as the path of its own file, as a nested section, or as a few values."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.formats import deepspeed
from strategist.formats.config_entries import Entries
from strategist.formats.config_reader import parse_config
from strategist.formats.deepspeed_export import STACK
from strategist.formats.finding_codes import finding
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.referenced_files import find_file
from strategist.formats.source import Entry, Source, load

PROGRAMS = ("recompute", "activation_offload")
"""Settings that the program of the outer file decides, not DeepSpeed's configuration."""

SERIOUS_CODES = ("FMT-001", "FMT-002", "FMT-004", "FMT-011")
DEFAULT_STAGE = 2
SHIPPED: Mapping[str, tuple[str, ...]] = {
    "deepspeed/ds_z0_config.json": (), "deepspeed/ds_z2_config.json": (), "deepspeed/ds_z3_config.json": (),
    "deepspeed/ds_z2_offload_config.json": ("optimizer",), "deepspeed/ds_z3_offload_config.json": ("optimizer", "param"),
    "deepspeed_configs/zero1.json": (), "deepspeed_configs/zero2.json": (), "deepspeed_configs/zero3.json": (),
    "deepspeed_configs/zero3_bf16.json": (), "deepspeed_configs/zero3_bf16_cpuoffload_params.json": ("param",),
    "deepspeed_configs/zero3_bf16_cpuoffload_all.json": ("optimizer", "param"),
}  # fmt: skip
"""Files that trainers ship, by folder and name, with what they offload; the stage is in the name. LLaMA-Factory has them in
``examples/deepspeed`` (0.9.5), Axolotl in ``deepspeed_configs`` (0.19.0)."""

_STAGE = re.compile(r"z(?:ero)?_?-?([0-3])")


def deepspeed_of(entries: Entries, name: str, precision: str) -> ParsedConfig | None:
    """Settings of an entry's DeepSpeed configuration: sharding, offload, batches and reduce dtype; None without one.

    The entry ``name`` holds the configuration or a path. Of a missing file the values that its name suggests are assumed.

    Args:
        precision: the program's compute dtype.

    Raises:
        FileError: the configuration, or a value in it, is invalid.
    """
    source = entries.source
    section = {key.removeprefix(f"{name}."): entry for key, entry in source.entries.items() if key.startswith(f"{name}.")}
    value = entries.get(name, *(f"{name}.{key}" for key in section))
    if section or value == {}:
        found = _nested_config(_section_source(source, section), precision)
        entry_names = {setting: f"{name}.{entry}" for setting, entry in found.entry_names.items()}
        return replace(found, entry_names=entry_names, findings=tuple(_prefixed_findings(found, name)))
    if value is None:
        return None
    if value is True or value in ("True", "true"):
        return _config_of_flags(entries, name, precision)
    path = find_file(source.entries[name].path or source.path, str(value))
    found = _nested_config(load(path), precision) if path else deepspeed_with(_values_by_file_name(str(value)), precision)
    findings = found.findings if path else (_missing(source, name, str(value)),)
    return replace(found, entry_names=dict.fromkeys(found.settings, name), findings=findings)


def deepspeed_with(values: Mapping[str, Any], precision: str) -> ParsedConfig:
    """Settings of DeepSpeed with only these values, by dotted name; values of None are left out."""
    named = {name: Entry(name=name, value=value) for name, value in values.items() if value is not None}
    return _nested_config(Source(path="", text="", language="json", entries=named), precision)


def _config_of_flags(entries: Entries, name: str, precision: str) -> ParsedConfig:
    """Settings of a script whose ``name`` is a flag without a file, by the flags of DeepSpeed-Chat."""
    stage, offloads = entries.integer("zero_stage", minimum=0), entries.enabled("offload")
    parts = ("offload_optimizer", "offload_param") if offloads else ()
    values = {"zero_optimization.stage": DEFAULT_STAGE if stage is None else stage}
    found = deepspeed_with({**values, **{f"zero_optimization.{part}.device": "cpu" for part in parts}}, precision)
    entry_names = dict.fromkeys(found.settings, "zero_stage" if stage is not None else name)
    if stage is not None:
        return replace(found, entry_names=entry_names, findings=())
    text = f"{name} is a flag without a file, and the script holds its configuration: ZeRO-{DEFAULT_STAGE} is assumed"
    return replace(
        found, entry_names=entry_names, findings=(finding("FMT-011", text, "name a file after it", entries.source, name),)
    )


def _nested_config(source: Source, precision: str) -> ParsedConfig:
    """Settings of a nested configuration; it reduces in the program's compute dtype (``set_mixed_precision``)."""
    found = parse_config(source, deepspeed.FORMAT)
    settings = {key: item for key, item in found.settings.items() if key not in PROGRAMS}
    if Entries(source).get("communication_data_type") is None:
        settings["reduce_dtype"] = "fp32" if precision == "fp32" else "bf16"
    workload = {key: item for key, item in found.workload.items() if key == "global_batch"}
    findings = tuple(item for item in found.findings if item.code in SERIOUS_CODES)
    stack = {"name": STACK, **found.stack}
    return replace(found, settings=settings, workload=workload, unstated=("recompute",), findings=findings, stack=stack)


def _section_source(source: Source, section: dict[str, Entry]) -> Source:
    plain = {key: replace(entry, name=key) for key, entry in section.items()}
    return Source(path=source.path, text="", language="json", entries=plain)


def _prefixed_findings(found: ParsedConfig, name: str) -> Iterator[Diagnostic]:
    for item in found.findings:
        yield replace(item, message=f"{name}: {item.message}")


def _values_by_file_name(value: str) -> dict[str, Any]:
    """Values of a missing file: of the shipped one of that name, else those that its name suggests, as shipped ones have it."""
    file = Path(value).name.lower()
    stage = int(named[1]) if (named := _STAGE.search(file)) else DEFAULT_STAGE
    parts = ("optimizer", *(("param",) if stage == 3 else ())) if "offload" in file else ()
    parts = SHIPPED.get(_folder_and_name(value), parts)
    return {"zero_optimization.stage": stage, **{f"zero_optimization.offload_{part}.device": "cpu" for part in parts}}


def _missing(source: Source, name: str, value: str) -> Diagnostic:
    """What is assumed of a missing file; only of a shipped one the contents are known."""
    do = "check the file where the path leads to it"
    if _folder_and_name(value) in SHIPPED:
        return finding("FMT-003", f"{name} {value} is not found: the shipped file of this name is assumed", do, source, name)
    assumed = _values_by_file_name(value)
    offload = " with offload" if len(assumed) > 1 else ""
    message = f"{name} {value} is not found: ZeRO-{assumed['zero_optimization.stage']}{offload} is assumed"
    return finding("FMT-011", message, do, source, name)


def _folder_and_name(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
