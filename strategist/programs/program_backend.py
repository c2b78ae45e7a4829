"""A program as a back end: settings that its command sets, declared settings, and defaults for all others."""

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
from strategist.rules.backend import ANY_BACKEND, PARTS as SECTIONS, Allowed, Backend, Refusal

if TYPE_CHECKING:
    from strategist.programs.program import Choice  # which our own back ends do without

_DEFAULTS = Candidate(layout=Layout(), knobs=Knobs())
_WORKLOAD = {f"workload.{name}": getattr(Workload(), name) for name in ("precision", "optimizer", "train", "document_tokens")}
IN_ENVIRONMENT = frozenset(f"options.{name}" for name in (*VARIABLES, *NUMBERS))
"""Options that libraries of any program read from the environment."""

REQUIRED_SETTINGS = ("workload.seq_len", "workload.global_batch")
"""Settings without a default: a program that does not get them trains something else than planned."""

NO_SYNC = "knobs.no_sync"
_NO_SYNC_WITHOUT_PIPELINE = Refusal(
    when=condition(f"layout.pp == 1 and {NO_SYNC}"),
    because="the command does not pass no_sync to the program, and without it only pipelines reduce once a step",
    do="choose no_sync false",
)


def free_settings(document: yaml_file.Document) -> frozenset[str]:
    """The settings that may have any value."""
    found = ((part, document.mapping([part])) for part in SECTIONS if part in document.data)
    return frozenset(f"{part}.{key}" for part, section in found for key, value in section.items() if value == ANY_BACKEND)


def backend_of(declared: Backend, passed_on: frozenset[str], choices: "Sequence[Choice]", free: frozenset[str]) -> Backend:
    """The back end of a program.

    Args:
        declared: limits and refusals that its file declares.
        passed_on: settings that its command passes on to it.
        choices: settings with arguments by value.
        free: settings that may have any value.
    """
    known = {**declared.limits}
    for choice in choices:
        values = tuple(value_in(choice.setting, text) for text in choice.arguments)
        known[choice.setting] = tuple(value for value in values if value in known.get(choice.setting, values))
    limits: Allowed = dict(known)
    for setting in _settings():
        if setting not in known and setting not in passed_on | free | IN_ENVIRONMENT:
            limits[setting] = (_default(setting),)
    refuses = declared.refuses
    if limits.get(NO_SYNC) == (False,) and limits.get("layout.pp") != (1,):
        del limits[NO_SYNC]
        refuses = (*refuses, _NO_SYNC_WITHOUT_PIPELINE)
    return replace(declared, limits=limits, refuses=refuses)


def missing_setting(passed_on: frozenset[str], declared: Backend, free: frozenset[str]) -> str:
    """The first of NEEDED that the program does not get; empty if none. Micro-batch and accumulation imply the global batch."""
    if {"knobs.micro_batch", "knobs.accumulation"} <= passed_on:
        passed_on = passed_on | {"workload.global_batch"}
    return next((name for name in REQUIRED_SETTINGS if name not in passed_on | free | declared.limits.keys()), "")


def varying_settings(backend: Backend, passed_on: frozenset[str]) -> Iterator[str]:
    """Settings of the program that may differ between plans, each with its values if they are limited."""
    for setting in _settings():
        values = backend.limits.get(setting)
        if values is None and setting in passed_on:
            yield setting
        elif values is not None and (len(values) > 1 or setting in passed_on):
            yield f"{setting} ({', '.join(map(show_value, values))})"


def value_in(setting: str, text: str) -> Any:
    """The value of a setting that ``text`` shows; the text itself if it shows none."""
    entry = VOCABULARY[setting]
    shown: Mapping[str, Any] = {show_value(value): value for value in entry.choices} | {"true": True, "false": False}
    return int(text) if text.isdigit() and not entry.choices else shown.get(text, text)


def _settings() -> tuple[str, ...]:
    return (*(full_name(name) for names in PARTS.values() for name in names), *_WORKLOAD)


def _default(setting: str) -> Any:
    return _WORKLOAD[setting] if setting in _WORKLOAD else value_of(_DEFAULTS, setting.partition(".")[2])
