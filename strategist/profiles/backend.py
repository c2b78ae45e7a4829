"""Back ends: which settings an executor can run, as data."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from strategist import yamlfile
from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.options import Options
from strategist.contract.settings import SETTING_CHOICES
from strategist.contract.workload import Workload
from strategist.errors import FileError
from strategist.profiles import catalog

Allowed = dict[str, tuple[Any, ...]]
ANY = "any"
"""The back end that refuses nothing."""

_PARTS: dict[str, type] = {"layout": Layout, "knobs": Knobs, "options": Options, "workload": Workload, "model": ModelShape}


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What an executor accepts. ``limits`` maps a name such as ``layout.pp`` to its allowed values; other names take any.

    ``model.moe`` and ``model.mla`` say whether a model may have experts and latent attention. No ``devices`` means any.
    """

    name: str
    title: str = ""
    devices: tuple[str, ...] = ()
    limits: Allowed = field(default_factory=dict)

    def allows(self, name: str, value: Any) -> bool:
        """Whether ``value`` may stand under ``name``, as in ``layout.pp`` or ``knobs.offload``."""
        return name not in self.limits or any(_same(value, item) for item in self.limits[name])

    def refusals(self, candidate: Candidate, model: ModelShape, workload: Workload, device_kind: str) -> tuple[str, ...]:
        """Why this back end cannot run the candidate, a sentence for each setting; empty when it can."""
        return tuple(self._refusals(candidate, model, workload, device_kind))

    def _refusals(self, candidate: Candidate, model: ModelShape, workload: Workload, device_kind: str) -> Iterator[str]:
        if self.devices and device_kind not in self.devices:
            yield f"{self.name} runs on {' or '.join(self.devices)}, not on {device_kind}"
        parts = {part: getattr(candidate, part) for part in ("layout", "knobs", "options")}
        parts |= {"workload": workload, "model": model}
        for name, allowed in self.limits.items():
            part, _, key = name.partition(".")
            if part == "options" and not candidate.acts(key, model):
                continue
            value = getattr(parts[part], key)
            if name in ("model.moe", "model.mla"):
                value = value is not None
            if not self.allows(name, value):
                yield f"{self.name} cannot run {name} = {show_value(value)}; it takes {', '.join(map(show_value, allowed))}"


def backends() -> tuple[str, ...]:
    """Names of all shipped back ends."""
    return catalog.profile_stems("backends")


@cache
def load_backend(name: str) -> Backend:
    """The back end of that name; ``any`` is the one that refuses nothing.

    Raises:
        InputError: there is none of that name.
        FileError: its file is not what it should be; names the place.
    """
    if name == ANY:
        return Backend(name=ANY, title="no back end in particular")
    if name not in backends():
        known = (ANY, *backends())
        raise catalog.unknown(f"backend {name}", "is not known", name, known, f"choose one of {', '.join(known)}")
    return read_backend(yamlfile.load(catalog.profile_path("backends", name)))


def read_backend(document: yamlfile.Document) -> Backend:
    """The back end that a file describes."""
    data = catalog.only(document, ("backend", "title", "devices", *_PARTS))
    for key in ("backend", "devices"):
        if key not in data:
            raise FileError(document.path, f"key {key!r} is missing")
    limits: Allowed = {}
    for part, cls in _PARTS.items():
        for key in catalog.only(document, [item.name for item in fields(cls)], [part]) if part in data else ():
            limits[f"{part}.{key}"] = _values(document, part, key)
    devices = data["devices"] if isinstance(data["devices"], list) else [data["devices"]]
    return Backend(
        name=str(data["backend"]), title=str(data.get("title", "")), devices=tuple(map(str, devices)), limits=limits
    )  # fmt: skip


def _values(document: yamlfile.Document, part: str, key: str) -> tuple[Any, ...]:
    """The allowed values at a place: a list, or one value; knobs with closed choices take only those."""
    value = document.data[part][key]
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise document.error([part, key], f"{part}.{key} allows no value at all")
    for item in values:
        choices = SETTING_CHOICES.get(key, ()) if part in ("knobs", "options") else ()
        if choices and not any(_same(item, choice) for choice in choices):
            raise document.error([part, key], f"{key} {show_value(item)} is not one of {', '.join(map(show_value, choices))}")
    return values


def _same(left: Any, right: Any) -> bool:
    """Equal, where true is not 1; values from columns may be of NumPy's types."""
    return bool(left == right) and type(left).__name__.startswith("bool") == isinstance(right, bool)
