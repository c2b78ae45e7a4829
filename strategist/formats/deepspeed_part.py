"""DeepSpeed's configuration as other systems' files name it: beside them by its path, or in place below a name."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.diagnostic import Diagnostic
from strategist.errors import FileError
from strategist.formats import deepspeed
from strategist.formats.codes import finding
from strategist.formats.entries import Entries
from strategist.formats.found import Found
from strategist.formats.reading import understood
from strategist.formats.source import Entry, Source, load, parse

BATCHES = ("micro_batch", "recompute", "activation_offload")
"""Settings that its configuration leaves to the program whose file names it."""

_STAGE = re.compile(r"z(?:ero)?_?-?([0-3])")


def deepspeed_of(entries: Entries, name: str) -> Found | None:
    """What the configuration at that entry says: sharding, offload and types; None where there is none.

    Raises:
        FileError: the configuration, or a value in it, is none.
    """
    source = entries.source
    inside = {key.removeprefix(f"{name}."): entry for key, entry in source.entries.items() if key.startswith(f"{name}.")}
    findings: tuple[Diagnostic, ...] = ()
    if inside:
        entries.get(*(f"{name}.{key}" for key in inside))
        found = understood(_below(source, inside), deepspeed.FORMAT)
        findings = tuple(_inside(found, source, name))
    elif (value := entries.get(name)) is None:
        return None
    elif path := _beside(source, str(value)):
        found = understood(load(path), deepspeed.FORMAT)
        findings = tuple(item for item in found.findings if item.code in ("FMT-001", "FMT-002", "FMT-004"))
    else:
        found, findings = _named(source, name, str(value))
    kept = {key: item for key, item in found.settings.items() if key not in BATCHES}
    return replace(found, settings=kept, findings=findings, said=dict.fromkeys(kept, name if name in source.entries else ""))


def _below(source: Source, inside: dict[str, Entry]) -> Source:
    plain = {key: replace(entry, name=key) for key, entry in inside.items()}
    return Source(path=source.path, text="", language="json", entries=plain)


def _inside(found: Found, source: Source, name: str) -> Iterator[Diagnostic]:
    """Findings about what stands in place; batches left to the trainer are none."""
    for item in found.findings:
        if item.code in ("FMT-001", "FMT-002", "FMT-004"):
            yield replace(item, message=f"{name}: {item.message}", path=source.path)


def _beside(source: Source, value: str) -> Path | None:
    """The file, from the working folder, or from a folder that the naming file lies in."""
    folders = (Path(), *Path(source.path).resolve().parents)
    paths = (folder / value for folder in folders)
    return next((path for path in paths if path.suffix == ".json" and path.is_file()), None)


def _named(source: Source, name: str, value: str) -> tuple[Found, tuple[Diagnostic, ...]]:
    """What the name of a file that is not there says: those that ship with trainers tell stage and offload."""
    file = Path(value).name.lower()
    stage = _STAGE.search(file)
    if stage is None:
        raise FileError(value, f"is not there, and its name tells no stage: {source.path} names it in {name}")
    place = {"device": "cpu"}
    section: dict[str, Any] = {"stage": int(stage[1])}
    if "offload" in file:
        section["offload_optimizer"] = place
    if "offload" in file and stage[1] == "3":
        section["offload_param"] = place
    text = json.dumps({"zero_optimization": section, "bf16": {"enabled": "auto"}})
    message = f"{name} names {value}, which is not there: what its name says is assumed"
    told = finding("FMT-003", message, "check the file where the path leads to it", source, name)
    return deepspeed.read(Entries(parse(text, "ds.json"))), (told,)
