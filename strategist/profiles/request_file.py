"""Request files: requests as YAML."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from strategist.contract.knobs import KnobValue
from strategist.contract.request import Request
from strategist.contract.setting_parser import check_allow, parsed_setting
from strategist.contract.workload import Workload
from strategist.errors import InputError, StrategistError
from strategist.files import yaml_file
from strategist.profiles import catalog
from strategist.units import SECONDS, parse_count, parse_memory_bytes, parse_quantity

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
_QUANTITIES: dict[str, tuple[str, Callable[[str, str], int | float]]] = {
    "host_memory": ("host_memory_bytes", parse_memory_bytes),
    "tokens": ("tokens", parse_count),
    "node_failures": ("node_seconds_between_failures", lambda text, name: parse_quantity(text, SECONDS, name)),
}
"""Keys with quantities: the field of Request, and its parser of a text and the key."""


def load_request(path: str | Path) -> Request:
    """The request in a YAML file; keys are the command's options, with ``_`` for ``-``.

    Raises:
        FileError: an unknown or missing key, or a value that breaks a law; with its position.
    """
    document = yaml_file.load(path)
    data = dict(document.mapping_with_keys(_KEYS))
    for key in ("model", "gpus"):
        if key not in data:
            raise document.error((), f"key {key!r} is missing: a request needs model and gpus; add it")
        if isinstance(data[key], int | float) and not isinstance(data[key], bool):
            data[key] = str(data[key])
    workload = {key: data.pop(key) for key in _WORKLOAD if key in data}
    for key, (field, parse) in _QUANTITIES.items():
        if (value := data.pop(key, None)) is not None:
            try:
                data[field] = parse(str(value), key)
            except StrategistError as error:
                raise document.error([key], str(error)) from None
    if "price" in data:
        data["price_per_hour"] = data.pop("price")
    data["fix"] = _fixed(document, data.get("fix") or {})
    data["allow"] = list(_allowed(document, data.get("allow") or []))
    data["workload"] = workload
    return catalog.decoded(Request, document, data, "request")


def request_text(request: Request) -> str:
    """The request as a request file, without default values."""
    defaults = Request(model=request.model, gpus=request.gpus)
    stated_values = {name: value for name, value in asdict(request).items() if value != getattr(defaults, name)}
    stated_values.pop("workload", None)
    workload = {name: value for name, value in asdict(request.workload).items() if value != getattr(defaults.workload, name)}
    for name, key, unit in (("host_memory_bytes", "host_memory", "B"), ("node_seconds_between_failures", "node_failures", "s")):
        if name in stated_values:
            stated_values[key] = f"{stated_values.pop(name)}{unit}"
    if "price_per_hour" in stated_values:
        stated_values["price"] = stated_values.pop("price_per_hour")
    stated_values |= {name: list(value) for name, value in stated_values.items() if isinstance(value, tuple)}
    return yaml_file.dump({"model": request.model, "gpus": request.gpus, **workload, **stated_values})


def _fixed(document: yaml_file.Document, settings: Any) -> dict[str, KnobValue]:
    fixed = {}
    for name, value in (document.mapping(["fix"]) if settings else {}).items():
        try:
            key, checked = parsed_setting(name, value)
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
