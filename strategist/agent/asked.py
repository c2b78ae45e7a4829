"""What agents ask for, as the use-cases take it: requests and what decides them; names and paths are looked at first."""

import re
from math import prod
from pathlib import Path
from typing import Any

from strategist.agent.problem import RefusedError
from strategist.agent.room import Room
from strategist.agent.schema import Schema, number, several, text, whole, word
from strategist.agent.workspace import Workspace
from strategist.contract.knobs import KnobValue
from strategist.contract.request import CONVERGENCE, OBJECTIVES, Request
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES, Workload
from strategist.formats.setup import Given
from strategist.profiles.request_file import parse_fix
from strategist.units import SECONDS, parse_count, parse_memory_bytes, parse_quantity

FILES = (".yaml", ".yml", ".json")
MOST_DEVICES = 2**17
_COUNTS = re.compile(r"([0-9]{1,12})\s*[xX]")

WORKLOAD: dict[str, Schema] = {
    "seq_len": whole("Tokens of a sequence (default 4096).", 8192),
    "global_batch": whole("Sequences of a step (default 64).", 128),
    "document_tokens": whole("Mean length of the documents packed into a sequence.", 600),
    "train": word("What is trained (default full).", TRAIN_MODES),
    "optimizer": word("Default adamw.", OPTIMIZERS),
    "precision": word("What matmuls compute in (default bf16).", PRECISIONS),
}

SITUATION: dict[str, Schema] = {
    "model": text("A preset, a bare size, a Hub id known here, or a config.json of the workspace.", "32b", "llama3-70b"),
    "gpus": text("Count and device, nodes x GPUs x device, local, or a cluster file of the workspace.", "8x24GB", "16x8xH100"),
    **WORKLOAD,
    "host_memory": text("Host memory of a node; plans then keep to it.", "512GiB"),
    "fix": several("Settings that must be so.", text(""), ["tp=4", "recompute=selective"]),
}

DECIDING: dict[str, Schema] = {
    "cards": several("Folders of the workspace with cards beside the shipped ones.", text(""), ["my-cards"]),
    "without": several("Ids of cards to leave out.", text(""), ["OFF-001"]),
    "calibration": text("calibration.json of a study in the workspace.", "studies/first/calibration.json"),
}

REQUEST: dict[str, Schema] = {
    **SITUATION,
    "objective": word("What makes a plan better (default throughput).", OBJECTIVES),
    "allow": several("What may change the trained model.", word("", CONVERGENCE), ["float8"]),
    "backend": {**text("What must be able to run the plan: any, native, or a name of resource strategist://profiles.", "native"),
                "pattern": "^[A-Za-z0-9_-]+$"},
    "tokens": text("Tokens to be trained in all; the answer then says how long that takes.", "300B"),
    "confidence": number("How surely a plan must fit (default 0.5).", 0.9, least=0.5, most=0.999),
    "node_failures": text("Mean time until a node fails.", "6h"),
    "price": number("Dollars of a device for an hour.", 2.5),
    **DECIDING,
}  # fmt: skip

PLAN = text("Id of a plan of this session, or a plan's .json file in the workspace.", "58698c070e9c")


def request(room: Room, arguments: dict[str, Any]) -> Request:
    """The request that arguments make.

    Raises:
        RefusedError, InputError: a value breaks a law, or a path leads out of the workspace.
    """
    given: dict[str, Any] = {name: arguments[name] for name in ("objective", "backend", "confidence") if name in arguments}
    if "host_memory" in arguments:
        given["host_memory_bytes"] = parse_memory_bytes(arguments["host_memory"], "host_memory")
    if "tokens" in arguments:
        given["tokens"] = parse_count(arguments["tokens"], "tokens")
    if "node_failures" in arguments:
        given["node_seconds_between_failures"] = parse_quantity(arguments["node_failures"], SECONDS, "node_failures")
    if "price" in arguments:
        given["price_per_hour"] = arguments["price"]
    return Request(
        model=model_name(room.workspace, arguments["model"]), gpus=cluster_name(room.workspace, arguments["gpus"]),
        workload=Workload(**_workload(arguments)), fix=fixed(arguments), allow=tuple(arguments.get("allow", ())), **given,
    )  # fmt: skip


def given(room: Room, arguments: dict[str, Any]) -> Given:
    """What is said beside a file of another system."""
    memory = arguments.get("host_memory")
    return Given(
        gpus=cluster_name(room.workspace, arguments["gpus"]),
        model=model_name(room.workspace, arguments["model"]) if "model" in arguments else None,
        host_memory_bytes=None if memory is None else parse_memory_bytes(memory, "host_memory"),
        workload=_workload(arguments), settings=fixed(arguments),
    )  # fmt: skip


def deciding(room: Room, arguments: dict[str, Any]) -> dict[str, Any]:
    """The cards and factors that decide."""
    calibration = arguments.get("calibration")
    return {
        **decks(room, arguments),
        "calibration": None if calibration is None else room.workspace.inside(calibration),
    }  # fmt: skip


def decks(room: Room, arguments: dict[str, Any]) -> dict[str, Any]:
    """The cards that decide."""
    return {"cards": room.folders(arguments.get("cards", [])), "without": arguments.get("without", [])}


def model_name(workspace: Workspace, name: str) -> str:
    """A model's name as it is, its path in the workspace as a whole one.

    Raises:
        RefusedError: the path leads out of it.
    """
    there = workspace.root / name
    a_path = name.startswith(("/", "~", ".")) or ".." in name or name.lower().endswith(FILES) or ("/" in name and there.exists())
    return str(workspace.inside(name)) if a_path else name


def cluster_name(workspace: Workspace, name: str) -> str:
    """The same of a cluster, whose devices are not so many that nobody else would get an answer.

    Raises:
        RefusedError: they are, or the path leads out of the workspace.
    """
    counts = [int(count) for count in _COUNTS.findall(name)]
    if prod(counts[:2]) > MOST_DEVICES:
        raise RefusedError("invalid_value", f"gpus {name}: are more than {MOST_DEVICES} devices", "ask for fewer")
    return str(workspace.inside(name)) if Path(name).suffix.lower() in FILES else name


def fixed(arguments: dict[str, Any]) -> dict[str, KnobValue]:
    """The settings that are fixed, by bare name."""
    return dict(parse_fix(item) for item in arguments.get("fix", ()))


def _workload(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in WORKLOAD if name in arguments}
