"""Back ends: which settings an executor can run, alone and together, as data."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.options import Options
from strategist.contract.settings import CONVERGENCE_SETTINGS, SETTING_CHOICES, full_name
from strategist.contract.workload import Workload
from strategist.errors import FileError
from strategist.expr.check import Expression, condition
from strategist.expr.columns import Columns, row_of
from strategist.expr.evaluate import Facts, Mask, mask, scalar
from strategist.expr.parse import ExpressionError
from strategist.expr.vocabulary import VOCABULARY, show_fact
from strategist.files import yaml_file
from strategist.profiles.stacks import stack_names

Allowed = dict[str, tuple[Any, ...]]
ANY = "any"
"""The back end that refuses nothing."""

PARTS: dict[str, type] = {"layout": Layout, "knobs": Knobs, "options": Options, "workload": Workload, "model": ModelShape}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What cannot be run together: where a condition surely holds; why, and what to do instead."""

    when: Expression
    because: str
    do: str

    def sentence(self, facts: Facts) -> str:
        """The values that it is about, why, and what to do."""
        names = (name for name in VOCABULARY if name in self.when.names and facts.get(name) is not None)
        values = ", ".join(f"{_word(name)} {show_fact(name, facts[name])}" for name in names)
        return f"{values}: {self.because}; {self.do}"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What an executor accepts. ``limits`` maps a name such as ``layout.pp`` to its allowed values; other names take any.
    ``refuses`` are combinations of allowed values that it cannot run. ``by_itself`` names settings that may change the trained
    model and that need no permission here, where it cannot run their usual value. ``stack`` names the profile that prices what it
    runs; empty for our own executing half.

    ``model.moe`` and ``model.mla`` say whether a model may have experts and latent attention, ``model.rope_scaling`` which kinds of
    it or none. No ``devices`` means any.
    """

    name: str
    title: str = ""
    devices: tuple[str, ...] = ()
    limits: Allowed = field(default_factory=dict)
    refuses: tuple[Refusal, ...] = ()
    by_itself: tuple[str, ...] = ()
    stack: str = ""

    def allows(self, name: str, value: Any) -> bool:
        """Whether ``value`` may stand under ``name``, as in ``layout.pp`` or ``knobs.offload``."""
        return name not in self.limits or any(_same(value, item) for item in self.limits[name])

    def refusals(self, candidate: Candidate, model: ModelShape, workload: Workload, facts: Facts) -> tuple[str, ...]:
        """Why this back end cannot run the candidate, a sentence each; empty when it can. ``facts`` are those of the situation."""
        return tuple(self._refusals(candidate, model, workload, facts))

    def runs(self, candidate: Candidate, model: ModelShape, workload: Workload, facts: Facts) -> bool:
        """Whether this back end runs the candidate."""
        return not any(self._refusals(candidate, model, workload, facts))

    def _refusals(self, candidate: Candidate, model: ModelShape, workload: Workload, facts: Facts) -> Iterator[str]:
        yield from self.outside(candidate, model, workload, str(facts["device.kind"])).values()
        for text in self.broken_combinations({**facts, **row_of(candidate, candidate.accumulation(workload))}):
            yield f"{self.name} cannot run {text}"

    def trains(self, model: ModelShape, workload: Workload) -> bool:
        """Whether it takes this model and workload, whatever the candidate."""
        parts = {"model": model, "workload": workload}
        names = ((name, *name.split(".", 1)) for name in self.limits)
        return all(self.allows(name, _shown(name, getattr(parts[part], key))) for name, part, key in names if part in parts)

    def broken_combinations(self, facts: Facts) -> Iterator[str]:
        """The combinations in ``facts``, as far as they are known, that it refuses, a sentence each."""
        for refusal in self.refuses:
            if scalar(refusal.when, facts) is True:
                yield refusal.sentence(facts)

    def takes(self, name: str, value: Any, facts: Facts) -> bool:
        """Whether no combination that it refuses speaks of the setting ``name`` and holds in ``facts`` with this value of it."""
        return not any(scalar(refusal.when, {**facts, name: value}) is True for refusal in self._about.get(name, ()))

    @cached_property
    def _about(self) -> Mapping[str, Sequence[Refusal]]:
        """What it refuses, by each name that the refusal speaks of."""
        found: dict[str, list[Refusal]] = {}
        for refusal in self.refuses:
            for name in refusal.when.names:
                found.setdefault(name, []).append(refusal)
        return found

    def refused(self, facts: Facts, columns: Columns) -> Mask:
        """The candidates that hold a combination which it refuses."""
        found: Mask = np.zeros(columns.rows, dtype=np.bool_)
        for refusal in self.refuses:
            found |= mask(refusal.when, facts, columns)
        return found

    def unrequested_convergence(self, facts: Facts, columns: Columns, allowed: Collection[str]) -> Mask:
        """Candidates that may change the trained model by a setting not ``allowed``, while the back end runs the usual value."""
        found: Mask = np.zeros(columns.rows, dtype=np.bool_)
        for setting in self.by_itself:
            name = full_name(setting)
            if setting in allowed or name not in columns.values or not self.allows(name, CONVERGENCE_SETTINGS[setting]):
                continue
            usual = columns.code(name, CONVERGENCE_SETTINGS[setting])
            differs = columns.values[name] != usual
            plain = Columns(
                values={**columns.values, name: np.full_like(columns.values[name], usual)}, categories=columns.categories
            )
            found |= differs & ~self.refused(facts, plain)
        return found

    def outside(self, candidate: Candidate, model: ModelShape, workload: Workload, device_kind: str) -> dict[str, str]:
        """What each setting by itself is refused for, by its full name; ``device`` for what it would run on."""
        return dict(self._outside(candidate, model, workload, device_kind))

    def _outside(self, candidate: Candidate, model: ModelShape, workload: Workload, device_kind: str) -> Iterator[tuple[str, str]]:
        if self.devices and device_kind not in self.devices:
            yield "device", f"{self.name} runs on {' or '.join(self.devices)}, not on {device_kind}"
        parts = {part: getattr(candidate, part) for part in ("layout", "knobs", "options")}
        parts |= {"workload": workload, "model": model}
        for name, allowed in self.limits.items():
            part, _, key = name.partition(".")
            if part == "options" and not candidate.acts(key, model):
                continue
            value = _shown(name, getattr(parts[part], key))
            if not self.allows(name, value):
                takes = ", ".join(filter(None, map(show_value, allowed)))
                yield name, f"{self.name} cannot run {name} = {show_value(value)}; it takes {takes}"


def _shown(name: str, value: Any) -> Any:
    """A value as a profile says it: parts of a model's shape by whether they are there, or by their kind."""
    if name in ("model.moe", "model.mla"):
        return value is not None
    if name == "model.rope_scaling":
        return "none" if value is None else value.kind
    if name == "layout.axis_order":
        return ".".join(value)
    return value


def _word(name: str) -> str:
    """``tp`` for ``layout.tp``; ``device kind`` for ``device.kind``."""
    part, _, word = name.partition(".")
    return f"{part} {word}" if part == "device" else word


def read_backend(document: yaml_file.Document) -> Backend:
    """The back end that a file describes."""
    data = document.mapping_with_keys(("backend", "title", "devices", *PARTS, "refuses", "by_itself", "stack"))
    for key in ("backend", "devices"):
        if key not in data:
            raise FileError(document.path, f"key {key!r} is missing; add it")
    devices = data["devices"] if isinstance(data["devices"], list) else [data["devices"]]
    return Backend(
        name=str(data["backend"]), title=str(data.get("title", "")), devices=tuple(map(str, devices)), limits=read_limits(document),
        refuses=read_refusals(document), by_itself=read_by_itself(document), stack=read_stack(document),
    )  # fmt: skip


def read_limits(document: yaml_file.Document) -> Allowed:
    """What the sections of a file allow, a list or one value for each setting; what takes ``any`` has no limit.

    Raises:
        FileError: no such setting, or no value of it.
    """
    found: Allowed = {}
    for part, cls in PARTS.items():
        for key in document.mapping_with_keys([item.name for item in fields(cls)], [part]) if part in document.data else ():
            if document.data[part][key] != ANY:
                found[f"{part}.{key}"] = _values(document, part, key)
    return found


def _values(document: yaml_file.Document, part: str, key: str) -> tuple[Any, ...]:
    """The allowed values at a place: a list, or one value; knobs with closed choices take only those."""
    value = document.data[part][key]
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise document.error([part, key], f"{part}.{key} allows no value at all; add one")
    for item in values:
        choices = SETTING_CHOICES.get(key, ()) if part in ("knobs", "options") else ()
        if choices and not any(_same(item, choice) for choice in choices):
            raise document.error([part, key], f"{key} {show_value(item)} is not one of {', '.join(map(show_value, choices))}")
    return values


def read_refusals(document: yaml_file.Document) -> tuple[Refusal, ...]:
    """What a file refuses together.

    Raises:
        FileError: an entry is no condition with its reason and its way out.
    """
    return tuple(_refusals(document, document.data.get("refuses") or []))


def read_stack(document: yaml_file.Document) -> str:
    """The profile that prices what the back end runs, by its name; empty where a file names none.

    Raises:
        FileError: there is none of that name.
    """
    name = document.data.get("stack", "")
    if name and name not in stack_names():
        raise document.error(["stack"], f"{name} is no stack; known are {', '.join(stack_names())}")
    return str(name)


def read_by_itself(document: yaml_file.Document) -> tuple[str, ...]:
    """Settings that may change the trained model, and that a file leaves to the back end.

    Raises:
        FileError: an entry is none.
    """
    entries = document.data.get("by_itself") or []
    known = ", ".join(CONVERGENCE_SETTINGS)
    if not isinstance(entries, list):
        raise document.error(["by_itself"], f"by_itself is a list, of {known}; write [NAME]")
    if wrong := next((item for item in entries if item not in CONVERGENCE_SETTINGS), None):
        raise document.error(["by_itself"], f"{wrong} does not change the trained model: by_itself names {known}")
    return tuple(entries)


def _refusals(document: yaml_file.Document, entries: Any) -> Iterator[Refusal]:
    if not isinstance(entries, list):
        raise document.error(["refuses"], "refuses is a list of conditions, each with because and do; write them so")
    for index in range(len(entries)):
        place: yaml_file.Place = ["refuses", index]
        entry: Mapping[str, Any] = document.mapping_with_keys(("when", "because", "do"), place)
        for key in ("when", "because", "do"):
            if not isinstance(entry.get(key), str):
                raise document.error(place, f"{key} is missing, or no text; write it")
        try:
            yield Refusal(when=condition(entry["when"]), because=entry["because"], do=entry["do"])
        except ExpressionError as error:
            raise document.error([*place, "when"], error.message) from None


def _same(left: Any, right: Any) -> bool:
    """Equal, where true is not 1; values from columns may be of NumPy's types."""
    return bool(left == right) and type(left).__name__.startswith("bool") == isinstance(right, bool)
