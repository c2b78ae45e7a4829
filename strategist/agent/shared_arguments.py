"""Arguments shared by several tools, and the requests made from them; names and paths are checked against the workspace."""

import re
from math import prod
from pathlib import Path
from typing import Annotated, Any

from strategist import api
from strategist.agent.problem import RefusedError
from strategist.agent.schema import Arguments, OneOf, number, several, text, whole
from strategist.agent.session import AgentSession
from strategist.agent.workspace import Workspace
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.request import CONVERGENCE, OBJECTIVES, Request
from strategist.contract.setting_parser import parse_fix
from strategist.contract.settings import SETTING_CHOICES, SETTING_NAMES
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES, Workload
from strategist.units import SECONDS, parse_count, parse_memory_bytes, parse_quantity

WAIT_SECONDS = 45.0
"""Default waiting time: clients usually wait a minute for an answer."""

DOCUMENT_SUFFIXES = (".yaml", ".yml", ".json")
MAX_DEVICES = 2**17
_COUNTS = re.compile(r"([0-9]{1,12})\s*[xX]")
_WORKLOAD, _PLAIN = Workload(), Request(model="", gpus="")

Text = Annotated[str, text()]
Model = Annotated[str, text("A preset, a size, a known Hub id, or a config.json in the workspace.", "32b", "llama3-70b")]
PlanName = Annotated[str, text("Id of a plan made here, or a plan's .json file in the workspace.", "58698c070e9c")]
Study = Annotated[str, text("Folder of a study in the workspace.", "studies/first")]
NewFile = Annotated[str, text("A new file in the workspace.", "out/plan.json")]


class WaitArguments(Arguments):
    wait_seconds: Annotated[float, number("Seconds; a call that takes longer becomes a job.", 0, most=600)] = WAIT_SECONDS


class Language(Arguments):
    lang: Annotated[str, OneOf(api.LANGUAGES), text("Language of the texts of cards.")] = api.ENGLISH


class OwnCards(Arguments):
    cards: Annotated[list[Text], several("Folders in the workspace with cards to add to the shipped ones.", ["my-cards"])]


class Cards(OwnCards):
    without: Annotated[list[Text], several("Ids of cards to leave out.", ["OFF-001"])]


class Deciding(Cards):
    calibration: Annotated[str, text("The calibration.json of a study in the workspace.", "studies/first/calibration.json")] = ""


class WorkloadArguments(Arguments):
    seq_len: Annotated[int, whole("Tokens of a sequence.", 8192)] = _WORKLOAD.seq_len
    global_batch: Annotated[int, whole("Sequences of a step.", 128)] = _WORKLOAD.global_batch
    document_tokens: Annotated[int, whole("Mean length of the documents packed into a sequence.", 600)] = 0
    train: Annotated[str, OneOf(TRAIN_MODES), text("All parameters or adapters.")] = _WORKLOAD.train
    optimizer: Annotated[str, OneOf(OPTIMIZERS), text()] = _WORKLOAD.optimizer
    precision: Annotated[str, OneOf(PRECISIONS), text("Data type of matrix multiplications.")] = _WORKLOAD.precision


def _settings() -> str:
    """All settings by name, with their values."""
    counts = [name for name in SETTING_NAMES if name not in SETTING_CHOICES]
    flags = [name for name, values in SETTING_CHOICES.items() if set(values) == {True, False}]
    words = [
        f"{name}={'|'.join(map(show_value, values))}" for name, values in SETTING_CHOICES.items() if name not in flags
    ]  # fmt: skip
    lists = (("Whole numbers", counts), ("True or false", flags), ("One of", words))
    choices = " ".join(f"{kind}: {', '.join(names)}." for kind, names in lists)
    return f"{choices} What they mean: resource strategist://vocabulary."


class SituationArguments(WorkloadArguments):
    gpus: Annotated[
        str,
        text("Count x device, nodes x GPUs x device, local for this machine, or a cluster file in the workspace.", "8x24GB",
             "16x8xH100"),
    ]  # fmt: skip
    host_memory: Annotated[str, text("Limit on the host memory of a node.", "512GiB")] = ""
    fix: Annotated[
        list[Text], several("Fixed settings, NAME=VALUE; the tool plan lists the names.", ["tp=4", "recompute=selective"])
    ]


class RequestArguments(SituationArguments, Deciding, WaitArguments):
    model: Model
    fix: Annotated[list[Text], several(f"Fixed settings, NAME=VALUE. {_settings()}", ["tp=4", "recompute=selective"])]
    objective: Annotated[str, OneOf(OBJECTIVES), text("Figure by which plans are ranked.")] = _PLAIN.objective
    allow: Annotated[
        list[Annotated[str, OneOf(tuple(CONVERGENCE))]],
        several("Settings that change the trained model and are allowed.", ["float8"]),
    ]
    backend: Annotated[
        str,
        text("Back end that must support the plan: any, native, or a name from resource strategist://profiles.", "native",
             pattern="^[A-Za-z0-9_-]+$"),
    ] = _PLAIN.backend  # fmt: skip
    tokens: Annotated[str, text("Total number of tokens to train on; the answer then includes the duration.", "300B")] = ""
    confidence: Annotated[float, number("Required probability that a plan fits.", 0.9, least=0.5, most=0.999)] = _PLAIN.confidence
    node_failures: Annotated[str, text("Mean time until a node fails.", "6h")] = ""
    price: Annotated[float, number("Dollars per device and hour.", 2.5)] = 0.0


def request(session: AgentSession, arguments: RequestArguments) -> Request:
    """The request made from the arguments.

    Raises:
        RefusedError, InputError: a value is invalid, or a path is outside the workspace.
    """
    given = arguments.given("objective", "backend", "confidence")
    if arguments.host_memory:
        given["host_memory_bytes"] = parse_memory_bytes(arguments.host_memory, "host_memory")
    if arguments.tokens:
        given["tokens"] = parse_count(arguments.tokens, "tokens")
    if arguments.node_failures:
        given["node_seconds_between_failures"] = parse_quantity(arguments.node_failures, SECONDS, "node_failures")
    if "price" in arguments.model_fields_set:
        given["price_per_hour"] = arguments.price
    return Request(
        model=model_name(session.workspace, arguments.model), gpus=cluster_name(session.workspace, arguments.gpus),
        workload=Workload(**_workload(arguments)), fix=fixed(arguments.fix), allow=tuple(arguments.allow), **given,
    )  # fmt: skip


def given(session: AgentSession, arguments: SituationArguments, model: str) -> api.GivenValues:
    """Values given beside a file of another system; without a model, the file names it."""
    return api.GivenValues(
        gpus=cluster_name(session.workspace, arguments.gpus), model=model_name(session.workspace, model) if model else None,
        host_memory_bytes=parse_memory_bytes(arguments.host_memory, "host_memory") if arguments.host_memory else None,
        workload=_workload(arguments), settings=fixed(arguments.fix),
    )  # fmt: skip


def deciding(session: AgentSession, arguments: Deciding) -> dict[str, Any]:
    """Cards and calibration, as keyword arguments of the API."""
    path = arguments.calibration
    return {**decks(session, arguments), "calibration": session.workspace.inside(path) if path else None}


def decks(session: AgentSession, arguments: Cards) -> dict[str, Any]:
    """Cards, as keyword arguments of the API."""
    return {"cards": session.folders(arguments.cards), "without": arguments.without}


def model_name(workspace: Workspace, name: str) -> str:
    """A model name unchanged, or the full path of a model file in the workspace.

    Raises:
        RefusedError: the path is outside the workspace.
    """
    path = workspace.root / name
    names_a_path = (
        name.startswith(("/", "~", "."))
        or ".." in name
        or name.lower().endswith(DOCUMENT_SUFFIXES)
        or ("/" in name and path.exists())
    )
    return str(workspace.inside(name)) if names_a_path else name


def cluster_name(workspace: Workspace, name: str) -> str:
    """A cluster name or the full path of a cluster file, with at most the devices that a call can plan for.

    Raises:
        RefusedError: it has more, or the path is outside the workspace.
    """
    counts = [int(count) for count in _COUNTS.findall(name)]
    if prod(counts[:2]) > MAX_DEVICES:
        raise RefusedError("invalid_value", f"gpus {name}: are more than {MAX_DEVICES} devices", "ask for fewer")
    return str(workspace.inside(name)) if Path(name).suffix.lower() in DOCUMENT_SUFFIXES else name


def check_names(session: AgentSession, arguments: Arguments) -> None:
    """Refuses arguments with an unknown model, cluster or plan.

    Raises:
        RefusedError, InputError, FileError: it is unknown, or its file cannot be read.
    """
    names = {name: value for name in ("model", "gpus", "plan") if isinstance(value := getattr(arguments, name, ""), str) and value}
    if "gpus" in names:
        api.cluster(cluster_name(session.workspace, names["gpus"]))
    if "model" in names:
        api.model(model_name(session.workspace, names["model"]))
    if "plan" in names:
        session.plan(names["plan"])


def fixed(settings: list[str]) -> dict[str, KnobValue]:
    """Fixed settings, by bare name."""
    return dict(map(parse_fix, settings))


def _workload(arguments: WorkloadArguments) -> dict[str, Any]:
    return arguments.given(*WorkloadArguments.model_fields)
