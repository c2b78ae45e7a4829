"""A program as a back end: settings that its command accepts, declared settings, and usual values of all others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strategist.contract.environment import NUMBERS, VARIABLES
from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import Layout
from strategist.contract.settings import PARTS, full_name, value_of
from strategist.contract.workload import Workload
from strategist.expr.check import condition
from strategist.expr.vocabulary import VOCABULARY
from strategist.files import yaml_file
from strategist.rules.backend import ANY, PARTS as SECTIONS, Allowed, Backend, Refusal

if TYPE_CHECKING:
    from strategist.programs.program import Choice  # which our own back ends do without

_PLAIN = Candidate(layout=Layout(), knobs=Knobs())
_USUAL = {f"workload.{name}": getattr(Workload(), name) for name in ("precision", "optimizer", "train", "document_tokens")}
IN_ENVIRONMENT = frozenset(f"options.{name}" for name in (*VARIABLES, *NUMBERS))
"""Options that libraries below any program read from its environment."""

NEEDED = ("workload.seq_len", "workload.global_batch")
"""What has no usual value: a program that is not told trains something else than was planned."""

NO_SYNC = "knobs.no_sync"
_ALONE = Refusal(
    when=condition(f"layout.pp == 1 and {NO_SYNC}"),
    because="nothing tells the program, and by itself only a pipeline waits",
    do="choose no_sync false",
)


def free_settings(document: yaml_file.Document) -> frozenset[str]:
    """The settings that may have any value."""
    found = ((part, document.mapping([part])) for part in SECTIONS if part in document.data)
    return frozenset(f"{part}.{key}" for part, section in found for key, value in section.items() if value == ANY)


def backend_of(declared: Backend, told: frozenset[str], choices: "Sequence[Choice]", free: frozenset[str]) -> Backend:
    """The back end of a program whose command is ``told`` names of the vocabulary, with arguments by ``choices``. ``declared`` is
    what its file says of settings, ``free`` those that may have any value."""
    known = {**declared.limits}
    for choice in choices:
        values = tuple(value_in(choice.setting, text) for text in choice.arguments)
        known[choice.setting] = tuple(value for value in values if value in known.get(choice.setting, values))
    limits: Allowed = dict(known)
    for setting in _settings():
        if setting not in known and setting not in told | free | IN_ENVIRONMENT:
            limits[setting] = (_usual(setting),)
    refuses = declared.refuses
    if limits.get(NO_SYNC) == (False,) and limits.get("layout.pp") != (1,):
        del limits[NO_SYNC]
        refuses = (*refuses, _ALONE)
    return replace(declared, limits=limits, refuses=refuses)


def missing_setting(told: frozenset[str], declared: Backend, free: frozenset[str]) -> str:
    """The first of NEEDED that nothing tells the program; empty where it knows them. A step's micro-batches imply its batch."""
    if {"knobs.micro_batch", "knobs.accumulation"} <= told:
        told = told | {"workload.global_batch"}
    return next((name for name in NEEDED if name not in told | free | declared.limits.keys()), "")


def settable(backend: Backend, told: frozenset[str]) -> Iterator[str]:
    """The settings that may differ from plan to plan, each with its values where not all can be; of those that are ``told``."""
    for setting in _settings():
        values = backend.limits.get(setting)
        if values is None and setting in told:
            yield setting
        elif values is not None and (len(values) > 1 or setting in told):
            yield f"{setting} ({', '.join(map(show_value, values))})"


def value_in(setting: str, text: str) -> Any:
    """The value of a setting that ``text`` shows; the text itself where it shows none."""
    entry = VOCABULARY[setting]
    shown: Mapping[str, Any] = {show_value(value): value for value in entry.choices} | {"true": True, "false": False}
    return int(text) if text.isdigit() and not entry.choices else shown.get(text, text)


def _settings() -> tuple[str, ...]:
    return (*(full_name(name) for names in PARTS.values() for name in names), *_USUAL)


def _usual(setting: str) -> Any:
    return _USUAL[setting] if setting in _USUAL else value_of(_PLAIN, setting.partition(".")[2])
