"""Requests as people write them: a YAML file, and settings such as ``tp=2``."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.request import CONVERGENCE, Request
from strategist.contract.settings import PARTS, SETTING_CHOICES, SETTING_NAMES, least
from strategist.contract.workload import Workload
from strategist.errors import InputError, StrategistError, near_miss, not_among
from strategist.files import yaml_file
from strategist.profiles import catalog
from strategist.units import SECONDS, parse_count, parse_memory_bytes, parse_quantity

MAX_DIGITS = 9
_WORKLOAD = tuple(item.name for item in fields(Workload))
_KEYS = (
    "model",
    "gpus",
    *_WORKLOAD,
    "objective",
    "confidence",
    "host_memory",
    "fix",
    "allow",
    "backend",
    "tokens",
    "node_failures",
    "price",
    "without",
)


def load_request(path: str | Path) -> Request:
    """The request in a YAML file; keys are the command's options, with ``_`` for ``-``.

    Raises:
        FileError: an unknown or missing key, or a value that breaks a law; with its place.
    """
    document = yaml_file.load(path)
    data = dict(catalog.mapping_with_keys(document, _KEYS))
    for key in ("model", "gpus"):
        if key not in data:
            raise document.error((), f"key {key!r} is missing: a request needs model and gpus; add it")
        if isinstance(data[key], int | float) and not isinstance(data[key], bool):
            data[key] = str(data[key])
    workload = {key: data.pop(key) for key in _WORKLOAD if key in data}
    try:
        if (memory := data.pop("host_memory", None)) is not None:
            data["host_memory_bytes"] = parse_memory_bytes(str(memory), "host_memory")
    except StrategistError as error:
        raise document.error(["host_memory"], str(error)) from None
    try:
        if (tokens := data.get("tokens")) is not None:
            data["tokens"] = parse_count(str(tokens), "tokens")
    except InputError as error:
        raise document.error(["tokens"], str(error)) from None
    try:
        if (between := data.pop("node_failures", None)) is not None:
            data["node_seconds_between_failures"] = parse_quantity(str(between), SECONDS, "node_failures")
    except InputError as error:
        raise document.error(["node_failures"], str(error)) from None
    if "price" in data:
        data["price_per_hour"] = data.pop("price")
    data["fix"] = _fixed(document, data.get("fix") or {})
    data["allow"] = list(_allowed(document, data.get("allow") or []))
    data["workload"] = workload
    return catalog.decoded(Request, document, data, "request")


def request_text(request: Request) -> str:
    """The request as such a file, without what stands at its default."""
    plain = Request(model=request.model, gpus=request.gpus)
    said = {name: value for name, value in asdict(request).items() if value != getattr(plain, name)}
    said.pop("workload", None)
    workload = {name: value for name, value in asdict(request.workload).items() if value != getattr(plain.workload, name)}
    for name, key, unit in (("host_memory_bytes", "host_memory", "B"), ("node_seconds_between_failures", "node_failures", "s")):
        if name in said:
            said[key] = f"{said.pop(name)}{unit}"
    if "price_per_hour" in said:
        said["price"] = said.pop("price_per_hour")
    if "allow" in said:
        said["allow"] = list(said["allow"])
    if "without" in said:
        said["without"] = list(said["without"])
    return yaml_file.dump({"model": request.model, "gpus": request.gpus, **workload, **said})


def _fixed(document: yaml_file.Document, settings: Any) -> dict[str, KnobValue]:
    fixed = {}
    for name, value in (catalog.mapping(document, ["fix"]) if settings else {}).items():
        try:
            key, checked = _check(name, value)
        except InputError as error:
            raise document.error(["fix", name], str(error)) from None
        fixed[key] = checked
    return fixed


def _allowed(document: yaml_file.Document, names: Any) -> Iterable[str]:
    if not isinstance(names, list):
        raise document.error(["allow"], "allow is a list of what may change convergence; write e.g. [float8]")
    for index, name in enumerate(names):
        try:
            yield check_allow(name)
        except InputError as error:
            raise document.error(["allow", index], str(error)) from None


def check_allow(name: Any) -> str:
    """What may change convergence, by its name.

    Raises:
        InputError: nothing of that name does.
    """
    if name not in CONVERGENCE:
        do = f"{near_miss(str(name), CONVERGENCE)}choose from {', '.join(CONVERGENCE)}"
        raise InputError(f"allow {name}", "is nothing that changes convergence", do)
    return str(name)


def parse_allow(text: str) -> Iterator[str]:
    """``float8,comm_hook`` as names of what may change convergence.

    Raises:
        InputError: nothing of a name does.
    """
    return (check_allow(name.strip()) for name in text.split(","))


def parse_fix(text: str) -> tuple[str, KnobValue]:
    """``tp=2`` as a name and a typed value.

    Raises:
        InputError: not ``name=value``, an unknown name, or a value that the setting cannot take.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or not value:
        raise InputError(f"--fix {text}", "a setting and a value are needed", "write e.g. tp=2 or recompute=full")
    return _check(name, {"true": True, "false": False}.get(value.lower(), value))


def setting_name(name: str, shown: str) -> str:
    """The bare name of a setting; ``layout.`` and the like in front may be left out. ``shown`` is what was written.

    Raises:
        InputError: there is no such setting.
    """
    part, _, key = name.rpartition(".")
    key = key if part in PARTS else name
    if key not in SETTING_NAMES:
        near = get_close_matches(key, SETTING_NAMES, n=2)
        do = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(SETTING_NAMES)}"
        raise InputError(shown, f"{key!r} is no setting", do)
    return key


def _check(name: str, value: Any) -> tuple[str, KnobValue]:
    """A setting by its bare name, with a value that it can take."""
    shown = f"--fix {name}={str(value).lower() if isinstance(value, bool) else value}"
    key = setting_name(name, shown)
    if key in SETTING_CHOICES:
        for choice in SETTING_CHOICES[key]:
            if type(value) is type(choice) and value == choice:
                return key, choice
        options = [show_value(choice) for choice in SETTING_CHOICES[key]]
        raise not_among(shown, str(value), options, f"is not a value of {key}")
    number = str(value)
    digits = number.isascii() and number.isdigit() and not isinstance(value, bool)
    if digits and len(number) > MAX_DIGITS:
        raise InputError(shown, f"a number has at most {MAX_DIGITS} digits", f"write e.g. {key}=2")
    if not digits or int(number) < least(key):
        raise InputError(shown, f"{key} is a {'positive whole number' if least(key) else 'whole number'}", f"write e.g. {key}=2")
    return key, int(number)
