"""Back ends: the settings that an executor supports, alone and in combination, as data."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, fields
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
from strategist.frozen import frozen
from strategist.profiles.stacks import stack_names

Allowed = dict[str, tuple[Any, ...]]
ANY_BACKEND = "any"
"""The back end without limits."""

PARTS: dict[str, type] = {"layout": Layout, "knobs": Knobs, "options": Options, "workload": Workload, "model": ModelShape}


@frozen
class Refusal:
    """A combination that a back end does not support: the condition for it, the reason, and the next step."""

    when: Expression
    because: str
    do: str

    def sentence(self, facts: Facts) -> str:
        """The values in the condition, the reason, and the next step, as a sentence."""
        names = (name for name in VOCABULARY if name in self.when.names and facts.get(name) is not None)
        values = ", ".join(f"{_display_name(name)} {show_fact(name, facts[name])}" for name in names)
        return f"{values}: {self.because}; {self.do}"


@frozen
class ConditionalStack:
    """The stack that prices those candidates of a back end for which a condition holds."""

    when: Expression
    stack: str


@frozen
class Backend:
    """Settings that an executor supports.

    devices: supported kinds of devices; empty for any.
    limits: allowed values by full name, such as ``layout.pp``; names without an entry allow any. ``model.moe`` and ``model.mla``:
        whether a model may have experts and latent attention; ``model.rope_scaling``: allowed kinds, or none.
    refuses: combinations of allowed values that it does not support.
    by_itself: settings that may change the trained model and need no permission where the back end does not support their usual
        value.
    stack: profile that prices its runs; empty for the built-in runtime.
    stacks: profiles of candidates that it runs on another framework, such as DeepSpeed; the first whose condition holds.
    """

    name: str
    title: str = ""
    devices: tuple[str, ...] = ()
    limits: Allowed = field(default_factory=dict)
    refuses: tuple[Refusal, ...] = ()
    by_itself: tuple[str, ...] = ()
    stack: str = ""
    stacks: tuple[ConditionalStack, ...] = ()

    def stack_for(self, facts: Facts) -> str:
        """Name of the stack that prices a candidate with these facts; empty for the built-in runtime."""
        return next((item.stack for item in self.stacks if scalar(item.when, facts) is True), self.stack)

    def allows(self, name: str, value: Any) -> bool:
        """Whether ``value`` is within the limits of ``name``, such as ``layout.pp`` or ``knobs.offload``."""
        return name not in self.limits or any(_is_same_value(value, item) for item in self.limits[name])

    def varies(self, name: str) -> bool:
        """Whether plans may differ in ``name``; otherwise the back end itself decides it."""
        return len(self.limits.get(name, (False, True))) > 1

    def unsupported_value(self, name: str, value: Any) -> str:
        """Reason why ``value`` of ``name`` is not supported, with the values that are; empty if it is."""
        value = _as_in_file(name, value)
        if self.allows(name, value):
            return ""
        takes = ", ".join(filter(None, map(show_value, self.limits[name])))
        return f"{self.name} cannot run {name} = {show_value(value)}; it takes {takes}"

    def refusals(self, candidate: Candidate, model: ModelShape, workload: Workload, facts: Facts) -> tuple[str, ...]:
        """Reasons why the back end cannot run the candidate, one sentence each; ``facts`` are those of the situation."""
        return tuple(self._refusals(candidate, model, workload, facts))

    def runs(self, candidate: Candidate, model: ModelShape, workload: Workload, facts: Facts) -> bool:
        """Whether the back end can run the candidate."""
        return not any(self._refusals(candidate, model, workload, facts))

    def _refusals(self, candidate: Candidate, model: ModelShape, workload: Workload, facts: Facts) -> Iterator[str]:
        yield from self.unsupported_settings(candidate, model, workload, str(facts["device.kind"])).values()
        for text in self.broken_combinations({**facts, **row_of(candidate, candidate.accumulation(workload))}):
            yield f"{self.name} cannot run {text}"

    def broken_combinations(self, facts: Facts) -> Iterator[str]:
        """Unsupported combinations that are known to hold in ``facts``, one sentence each."""
        for refusal in self.refuses:
            if scalar(refusal.when, facts) is True:
                yield refusal.sentence(facts)

    def accepts(self, name: str, value: Any, facts: Facts) -> bool:
        """Whether no unsupported combination that depends on ``name`` holds in ``facts`` with this value of it."""
        return not any(scalar(refusal.when, {**facts, name: value}) is True for refusal in self._refusals_by_name.get(name, ()))

    @cached_property
    def _refusals_by_name(self) -> Mapping[str, Sequence[Refusal]]:
        """Refusals by each name in their conditions."""
        found: dict[str, list[Refusal]] = {}
        for refusal in self.refuses:
            for name in refusal.when.names:
                found.setdefault(name, []).append(refusal)
        return found

    def refused(self, facts: Facts, columns: Columns) -> Mask:
        """Mask of the candidates with an unsupported combination."""
        found: Mask = np.zeros(columns.rows, dtype=np.bool_)
        for refusal in self.refuses:
            found |= mask(refusal.when, facts, columns)
        return found

    def unrequested_convergence(self, facts: Facts, columns: Columns, allowed: Collection[str]) -> Mask:
        """Candidates that may change the trained model by a setting not ``allowed``, although the back end supports its usual
        value.
        """
        found: Mask = np.zeros(columns.rows, dtype=np.bool_)
        for setting in self.by_itself:
            name = full_name(setting)
            if setting in allowed or name not in columns.values or not self.allows(name, CONVERGENCE_SETTINGS[setting]):
                continue
            neutral = columns.code(name, CONVERGENCE_SETTINGS[setting])
            is_changed = columns.values[name] != neutral
            neutral_columns = Columns(
                values={**columns.values, name: np.full_like(columns.values[name], neutral)}, categories=columns.categories
            )
            found |= is_changed & ~self.refused(facts, neutral_columns)
        return found

    def unsupported_settings(self, candidate: Candidate, model: ModelShape, workload: Workload, device_kind: str) -> dict[str, str]:
        """Reasons why values are not supported, by full name of the setting; ``device`` for the kind of device."""
        return dict(self._unsupported_settings(candidate, model, workload, device_kind))

    def _unsupported_settings(
        self, candidate: Candidate, model: ModelShape, workload: Workload, device_kind: str
    ) -> Iterator[tuple[str, str]]:
        if self.devices and device_kind not in self.devices:
            yield "device", f"{self.name} runs on {' or '.join(self.devices)}, not on {device_kind}"
        parts = {part: getattr(candidate, part) for part in ("layout", "knobs", "options")}
        parts |= {"workload": workload, "model": model}
        for name in self.limits:
            part, _, key = name.partition(".")
            if part == "options" and not candidate.acts(key, model):
                continue
            if reason := self.unsupported_value(name, getattr(parts[part], key)):
                yield name, reason


def _as_in_file(name: str, value: Any) -> Any:
    """A value as back-end files write it: for parts of a model's shape, existence or kind; the order of the axes as one string."""
    if name in ("model.moe", "model.mla"):
        return value is not None
    if name == "model.rope_scaling":
        return "none" if value is None else value.kind
    if name == "layout.axis_order" and not isinstance(value, str):
        return ".".join(value)
    return value


def _display_name(name: str) -> str:
    """Short name for messages: ``tp`` for ``layout.tp``, ``device kind`` for ``device.kind``."""
    part, _, word = name.partition(".")
    return f"{part} {word}" if part == "device" else word


def read_backend(document: yaml_file.Document) -> Backend:
    """The back end in a file.

    Raises:
        FileError: a key is missing or unknown, or a value is not allowed.
    """
    data = document.mapping_with_keys(("backend", "title", "devices", *PARTS, "refuses", "by_itself", "stack", "stacks"))
    for key in ("backend", "devices"):
        if key not in data:
            raise FileError(document.path, f"key {key!r} is missing; add it")
    devices = data["devices"] if isinstance(data["devices"], list) else [data["devices"]]
    return Backend(
        name=str(data["backend"]), title=str(data.get("title", "")), devices=tuple(map(str, devices)), limits=read_limits(document),
        refuses=read_refusals(document), by_itself=read_by_itself(document), stack=read_stack(document),
        stacks=read_stacks(document),
    )  # fmt: skip


def read_limits(document: yaml_file.Document) -> Allowed:
    """Limits in the sections of a file: a list or one value per setting; ``any`` means no limit.

    Raises:
        FileError: an unknown setting, or a value that it does not have.
    """
    found: Allowed = {}
    for part, cls in PARTS.items():
        for key in document.mapping_with_keys([item.name for item in fields(cls)], [part]) if part in document.data else ():
            if document.data[part][key] != ANY_BACKEND:
                found[f"{part}.{key}"] = _values(document, part, key)
    return found


def _values(document: yaml_file.Document, part: str, key: str) -> tuple[Any, ...]:
    """Allowed values at a place, as a list or one value. Settings with a closed set of values allow only those."""
    value = document.data[part][key]
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise document.error([part, key], f"{part}.{key} allows no value at all; add one")
    for item in values:
        choices = SETTING_CHOICES.get(key, ()) if part in ("knobs", "options") else ()
        if choices and not any(_is_same_value(item, choice) for choice in choices):
            raise document.error([part, key], f"{key} {show_value(item)} is not one of {', '.join(map(show_value, choices))}")
    return values


def read_refusals(document: yaml_file.Document) -> tuple[Refusal, ...]:
    """Unsupported combinations in a file.

    Raises:
        FileError: an entry is not a condition with ``because`` and ``do``.
    """
    return tuple(_refusals(document, document.data.get("refuses") or []))


def read_stack(document: yaml_file.Document) -> str:
    """Name of the stack that prices the back end's runs; empty where the file names none.

    Raises:
        FileError: there is no such stack.
    """
    return _stack_name(document, document.data.get("stack", ""), ["stack"])


def read_stacks(document: yaml_file.Document) -> tuple[ConditionalStack, ...]:
    """Stacks of some candidates in a file.

    Raises:
        FileError: an entry is not a condition with a stack.
    """
    entries = document.data.get("stacks") or []
    if not isinstance(entries, list):
        raise document.error(
            ["stacks"], "stacks is a list of conditions, each with a stack; write [{when: CONDITION, stack: NAME}]"
        )
    found = []
    for index in range(len(entries)):
        key_path: yaml_file.KeyPath = ["stacks", index]
        entry = _texts_of_entry(document, key_path, ("when", "stack"))
        name = _stack_name(document, entry["stack"], [*key_path, "stack"])
        found.append(ConditionalStack(when=_condition(document, [*key_path, "when"], entry["when"]), stack=name))
    return tuple(found)


def _stack_name(document: yaml_file.Document, name: Any, key_path: yaml_file.KeyPath) -> str:
    if name and name not in stack_names():
        raise document.error(key_path, f"{name} is not a stack; known are {', '.join(stack_names())}")
    return str(name)


def read_by_itself(document: yaml_file.Document) -> tuple[str, ...]:
    """Settings that may change the trained model and that the file leaves to the back end.

    Raises:
        FileError: an entry is not such a setting.
    """
    entries = document.data.get("by_itself") or []
    known = ", ".join(CONVERGENCE_SETTINGS)
    if not isinstance(entries, list):
        raise document.error(["by_itself"], f"by_itself is a list, of {known}; write [NAME]")
    if unknown := next((item for item in entries if item not in CONVERGENCE_SETTINGS), None):
        raise document.error(["by_itself"], f"{unknown} does not change the trained model: by_itself names {known}")
    return tuple(entries)


def _refusals(document: yaml_file.Document, entries: Any) -> Iterator[Refusal]:
    if not isinstance(entries, list):
        raise document.error(["refuses"], "refuses is a list of conditions, each with because and do; write them so")
    for index in range(len(entries)):
        key_path: yaml_file.KeyPath = ["refuses", index]
        entry = _texts_of_entry(document, key_path, ("when", "because", "do"))
        when = _condition(document, [*key_path, "when"], entry["when"])
        yield Refusal(when=when, because=entry["because"], do=entry["do"])


def _texts_of_entry(document: yaml_file.Document, key_path: yaml_file.KeyPath, keys: Sequence[str]) -> Mapping[str, str]:
    """An entry of a list with these keys, each with a text."""
    entry: Mapping[str, Any] = document.mapping_with_keys(keys, key_path)
    for key in keys:
        if not isinstance(entry.get(key), str):
            raise document.error(key_path, f"{key} is missing, or no text; write it")
    return entry


def _condition(document: yaml_file.Document, key_path: yaml_file.KeyPath, text: str) -> Expression:
    try:
        return condition(text)
    except ExpressionError as error:
        raise document.error(key_path, error.message) from None


def _is_same_value(left: Any, right: Any) -> bool:
    """Equality in which True does not equal 1. ``left`` may have a NumPy type."""
    return bool(left == right) and type(left).__name__.startswith("bool") == isinstance(right, bool)
