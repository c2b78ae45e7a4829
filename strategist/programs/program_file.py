"""Program files: a YAML or JSON description of an external trainer."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from strategist.contract.knobs import show_value
from strategist.errors import StrategistError
from strategist.expr.check import condition
from strategist.expr.vocabulary import CANDIDATE, VOCABULARY, near_miss
from strategist.files import yaml_file
from strategist.profiles import catalog
from strategist.programs.log_pattern import PatternError, check_figure, pattern
from strategist.programs.program import Choice, Conditional, Deadlines, Entry, Metrics, OutOfMemory, Program, Variable, templates
from strategist.programs.program_backend import backend_of, free_settings, missing_setting, value_in, varying_settings
from strategist.programs.template import Template, template
from strategist.rules.backend import PARTS, Backend, read_by_itself, read_limits, read_refusals, read_stack, read_stacks

KEYS = (
    "program", "title", "source", "devices", "command", "environment", "passes", "metrics", "out_of_memory", "deadlines", *PARTS,
    "refuses", "by_itself", "stack", "stacks",
)  # fmt: skip
T = TypeVar("T")
_BY_WORKLOAD = ("workload.precision", "workload.optimizer", "workload.train")


def read_program(document: yaml_file.Document) -> Program:
    """The program that a file describes.

    Raises:
        FileError: a key, template, pattern or setting is invalid, or the command does not pass on what is trained; with the
            position.
    """
    data = document.mapping_with_keys(KEYS)
    name = _text(document, ["program"])
    command = tuple(_entries(document))
    environment_keys = document.mapping(["environment"]) if "environment" in data else ()
    environment = {key: _variable(document, ["environment", key]) for key in environment_keys}
    passed_on = frozenset().union(*(item.names for item in templates((*command, *environment.values()))))
    free = free_settings(document)
    devices = tuple(_texts(document, ["devices"])) if "devices" in data else ()
    title = str(data.get("title", ""))
    declared = Backend(
        name=name, title=title, devices=devices, limits=read_limits(document), refuses=read_refusals(document),
        by_itself=read_by_itself(document),
        stack=read_stack(document), stacks=read_stacks(document),
    )  # fmt: skip
    choices = [entry for entry in command if isinstance(entry, Choice)]
    passed_on |= {choice.setting for choice in choices}
    if missing := missing_setting(passed_on, declared, free):
        part, _, key = missing.partition(".")
        law = f"the command does not pass {missing} to the program"
        raise document.error(
            ["command"], f"{law}; write {{{missing}}} into its command, or, where it is always the same, {part}: {{{key}: [VALUE]}}"
        )
    backend = backend_of(declared, passed_on, choices, free)
    return Program(
        name=name,
        title=title,
        source=str(data.get("source", "")),
        folder=str(Path(document.path).resolve().parent),
        command=command,
        environment=environment,
        passes=tuple(_texts(document, ["passes"])) if "passes" in data else (),
        metrics=_metrics(document),
        out_of_memory=_decoded(OutOfMemory, document, "out_of_memory"),
        deadlines=_decoded(Deadlines, document, "deadlines"),
        backend=backend,
        sets=tuple(varying_settings(backend, passed_on | free)),
        digest=hashlib.sha256(document.text.encode()).hexdigest()[:16],
    )


def _entries(document: yaml_file.Document) -> Iterator[Entry]:
    entries = document.data.get("command")
    if not isinstance(entries, list) or not entries or not isinstance(entries[0], str):
        raise document.error(
            ["command"], "command is a list of arguments, of which the first is what is run; write [python, train.py]"
        )
    for index, entry in enumerate(entries):
        key_path: yaml_file.KeyPath = ["command", index]
        if not isinstance(entry, dict):
            yield _template(document, key_path)
        elif "when" in entry or "arguments" in entry:
            yield _conditional(document, key_path)
        else:
            yield from (_choice(document, [*key_path, setting]) for setting in entry)


def _conditional(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> Conditional:
    entry = document.mapping_with_keys(("when", "arguments"), key_path)
    if len(entry) < 2:
        raise document.error(key_path, "arguments that depend on a condition need both when and arguments; add what is missing")
    when = _checked(document, [*key_path, "when"], condition)
    return Conditional(when=when, arguments=_arguments(document, [*key_path, "arguments"]))


def _choice(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> Choice:
    """Arguments by value of the setting that the last key names."""
    setting = str(key_path[-1])
    entry = VOCABULARY.get(setting)
    if entry is None or (entry.phase != CANDIDATE and setting not in _BY_WORKLOAD):
        known = [name for name, item in VOCABULARY.items() if item.phase == CANDIDATE]
        raise document.error(key_path, f"{setting} is not a setting{near_miss(setting, known)}", key=True)
    arguments = {}
    for text in document.mapping(key_path):
        value = value_in(setting, text)
        if isinstance(value, str) and value not in entry.choices:
            shown = ", ".join(map(show_value, entry.choices)) or "whole numbers, or true and false"
            raise document.error([*key_path, text], f"{text} is not a value of {setting}; its values are {shown}", key=True)
        arguments[text] = _arguments(document, [*key_path, text])
    return Choice(setting=setting, arguments=arguments)


def _variable(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> Variable:
    """The value of an environment variable: text, or texts by value of one setting."""
    value = _at(document, key_path)
    if not isinstance(value, dict):
        return _template(document, key_path)
    if len(value) != 1:
        raise document.error(key_path, "a variable depends on one setting; write NAME: {SETTING: {VALUE: TEXT}}")
    return _choice(document, [*key_path, *value])


def _arguments(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> tuple[Template, ...]:
    if key_path[0] == "environment":
        return (_template(document, key_path),)
    return tuple(_template(document, [*key_path, index]) for index in range(len(_list(document, key_path))))


def _metrics(document: yaml_file.Document) -> Metrics:
    if "metrics" not in document.data:
        raise document.error((), "key 'metrics' is missing: add it, it defines how the time of a step is read")
    data = document.mapping_with_keys(("lines", "json", "fields", "warmup_steps"), ["metrics"])
    lines = tuple(_texts(document, ["metrics", "lines"])) if "lines" in data else ()
    for index in range(len(lines)):
        _checked(document, ["metrics", "lines", *([index] if isinstance(data["lines"], list) else [])], pattern)
    if "fields" in data and "json" not in data:
        raise document.error(["metrics", "fields"], "are positions in a JSON file, and json does not name the file; add json: FILE")
    fields = {}
    for figure in document.mapping(["metrics", "fields"]) if "json" in data else ():
        key_path = ["metrics", "fields", figure]
        try:
            check_figure(figure)
        except PatternError as error:
            raise document.error(key_path, str(error), key=True) from None
        fields[figure] = _text(document, key_path)
    if not lines and not fields:
        raise document.error(["metrics"], "metrics need lines, patterns of the log, or json and fields; add one")
    warmup = data.get("warmup_steps")
    if warmup is not None and (not isinstance(warmup, int) or isinstance(warmup, bool) or warmup < 0):
        raise document.error(["metrics", "warmup_steps"], "warmup_steps is a whole number, 0 or more; correct it")
    json = _template(document, ["metrics", "json"]) if "json" in data else None
    return Metrics(lines=lines, json=json, fields=fields, warmup_steps=warmup)


def _decoded(cls: type[T], document: yaml_file.Document, key: str) -> T:
    data = document.data.get(key)
    return cls() if data is None else catalog.decoded(cls, document, data, key, [key])


def _at(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> Any:
    value = document.data
    for step in key_path:
        value = value.get(step) if isinstance(value, dict) else value[step]
    return value


def _checked(document: yaml_file.Document, key_path: yaml_file.KeyPath, check: Callable[[str], T]) -> T:
    """The result of ``check`` on the text at ``key_path``, to which its errors point."""
    try:
        return check(_text(document, key_path))
    except StrategistError as error:
        if hasattr(error, "line"):
            raise
        raise document.error(key_path, str(error)) from None


def _template(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> Template:
    return _checked(document, key_path, template)


def _text(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> str:
    """The text at ``key_path``; a number counts as text."""
    value = _at(document, key_path)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise document.error(key_path, f"{key_path[-1] if isinstance(key_path[-1], str) else 'an entry'} must be text: quote it")
    return str(value)


def _texts(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> Iterator[str]:
    if isinstance(_at(document, key_path), str):
        yield _text(document, key_path)
        return
    for index in range(len(_list(document, key_path))):
        yield _text(document, [*key_path, index])


def _list(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> list[Any]:
    value = _at(document, key_path)
    if not isinstance(value, list):
        raise document.error(key_path, f"{'.'.join(map(str, key_path))} must be a list; write [VALUE]")
    return value
