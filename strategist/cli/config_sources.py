"""Default option values: environment, then strategist.yaml of this folder, then the user's own file.

Values are inserted as options before those of the command line, so that they are parsed and rejected as if typed. Only the nearest
value of an option counts; values are not merged.
"""

import argparse
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strategist.cli.parser import Parser, path_kind, typed_options
from strategist.errors import InputError
from strategist.files import yaml_file
from strategist.frozen import frozen

REQUEST = (
    "model", "gpus", "seq_len", "global_batch", "document_tokens", "train", "lora_rank", "optimizer", "precision", "host_memory",
    "fix", "objective", "confidence", "allow", "node_failures", "price", "backend",
)  # fmt: skip
"""Options of the planning commands; ignored if a request file is named, because it is complete."""
INPUTS = ("weights", "data", "tokenizer")
"""Options of the exporting commands."""
COMMANDS_OF_OPTION = {**dict.fromkeys(REQUEST, (("plan",), ("tune",))), **dict.fromkeys(INPUTS, (("plan",), ("export",)))}
SHARED_OPTIONS = (
    *REQUEST, "cards", "without", "calibration", "lang", "engine", "hosts", "remote_shell", "slurm", "ray", "ledger", "image",
    "volume", "env", "resource", "node_label", "workdir", *INPUTS,
)  # fmt: skip
"""Options that are set once for every command that has them. All other options belong under the name of their command."""
ALSO_COMMANDS = ("cards",)
"""Names of options that are also commands (as a mapping)."""
TRUSTED_OPTIONS = frozenset(
    {
        "backend", "engine", "env", "force", "hosts", "image", "ledger", "model_code", "ray", "remote_shell", "run_examples",
        "slurm", "volume", "wandb", *INPUTS,
    }
)  # fmt: skip
"""Options that run programs or send data away; strategist.yaml of a folder, which may come from elsewhere, must not set them."""
TRUSTED_PATHS = (("mcp",), ("cards", "test", "cards"), ("cards", "lint", "fix"))
"""Options that only trusted files may set: they grant rights to agents, run programs of cards, or change files."""
UNTRUSTED_PATHS = (("plan", "backend"),)
"""Exceptions: options that start nothing here; ``plan --backend`` only limits plans."""
READ_ONLY_PATHS = ("cards", "calibration", "request")
"""Paths that are only read as data; any other path is written to, or loaded by a program."""
FOLDER_FILE, PREFIX, FILE_VARIABLE = "strategist.yaml", "STRATEGIST_", "STRATEGIST_CONFIG"
OTHER_VARIABLES = (FILE_VARIABLE, "STRATEGIST_MCP_TOKEN", "STRATEGIST_PARENT", "STRATEGIST_TRIAL")
"""Environment variables that are not options."""
ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@frozen
class OptionDefault:
    """A default value: the option as it would be typed, its source, and the sources that it overrides."""

    name: str
    words: tuple[str, ...]
    source: str
    overridden: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        return self.words[0].partition("=")[0]


@frozen
class Environment:
    """Environment variables: ``STRATEGIST_GPUS``, or ``STRATEGIST_TUNE_TRIALS`` for one command; several values are written as
    in a shell.
    """

    variables: Mapping[str, str]

    def find(self, path: Sequence[str], action: argparse.Action) -> tuple[Any, str] | None:
        """The value of an option of the command at ``path``, and its place."""
        name = action.dest
        names = (PREFIX + "_".join(key_path).upper().replace("-", "_") for key_path in _key_paths(path, name))
        return next(((self.variables[key], key) for key in names if key in self.variables), None)


@frozen
class File:
    """A YAML file: shared options by name, others under the name of their command."""

    document: yaml_file.Document
    trusted: bool

    def find(self, path: Sequence[str], action: argparse.Action) -> tuple[Any, str] | None:
        """The value of an option of the command at ``path``, and its place.

        Raises:
            FileError: the file is not trusted and sets an option that needs trust.
        """
        name = action.dest
        for key_path in _key_paths(path, name):
            value = _value_at(self.document.data, key_path)
            if value is not None and not (key_path == ALSO_COMMANDS and isinstance(value, dict)):
                if not self.trusted and _needs_trust(path, action):
                    law = f"{name} may run programs, write files or send data away, so a project's file must not set it"
                    raise self.document.error(key_path, f"{law}; write it into {user_file()}", key=True)
                return value, f"{self.document.path}:{self.document.mark(key_path)[0]}"
        return None

    def check(self, command: Parser, path: tuple[str, ...]) -> None:
        """Checks that every key under a command's name is an option or a subcommand.

        Raises:
            FileError: it is neither.
        """
        if isinstance(_value_at(self.document.data, path), dict):
            self.document.mapping_with_keys((*_options(command), *command.known_commands()), path)


Source = Environment | File


def user_file() -> Path:
    """The user's own file, which applies in every folder."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "strategist" / "config.yaml"


def config_paths() -> tuple[Path, ...]:
    """Configuration files, nearest first; ``STRATEGIST_CONFIG`` names one instead, or none if empty."""
    named_file = os.environ.get(FILE_VARIABLE)
    return (Path(FOLDER_FILE), user_file()) if named_file is None else (Path(named_file),) if named_file else ()


def sources(commands: Collection[str]) -> tuple[Source, ...]:
    """All sources that exist, nearest first.

    Raises:
        FileError: a file is invalid, or has a key that is neither a shared option nor a command.
    """
    is_named = FILE_VARIABLE in os.environ
    existing = (file for file in config_paths() if is_named or file.is_file())
    files = (File(document=_load(file, commands), trusted=file != Path(FOLDER_FILE)) for file in existing)
    return (Environment(variables=os.environ), *files)


def _load(path: Path, commands: Collection[str]) -> yaml_file.Document:
    document = yaml_file.load(path)
    for name in document.mapping_with_keys((*SHARED_OPTIONS, *commands)) if document.data is not None else ():
        if name not in SHARED_OPTIONS:
            document.mapping([name])
    return document


def _key_paths(path: Sequence[str], name: str) -> Iterator[tuple[str, ...]]:
    """Places of an option: under its command, and at the top level if shared."""
    yield (*path, name)
    if name in SHARED_OPTIONS and tuple(path) in COMMANDS_OF_OPTION.get(name, (tuple(path),)):
        yield (name,)


def _needs_trust(path: Sequence[str], action: argparse.Action) -> bool:
    """Whether the option may only be set by trusted sources."""
    option_path = (*path, action.dest)
    if option_path in UNTRUSTED_PATHS:
        return False
    is_listed = any(option_path[: len(trusted_path)] == trusted_path for trusted_path in TRUSTED_PATHS)
    return is_listed or action.dest in TRUSTED_OPTIONS or (action.dest not in READ_ONLY_PATHS and path_kind(action) != "")


def _value_at(data: Any, key_path: Sequence[str]) -> Any:
    """The value at a place; None if there is none."""
    for step in key_path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


def with_default_values(
    parser: Parser, arguments: Sequence[str], option_sources: Sequence[Source]
) -> tuple[list[str], tuple[OptionDefault, ...]]:
    """The command line with default values inserted, and these values.

    Raises:
        InputError, FileError: a value is not an option of the command, or has the wrong type.
    """
    command, path, end = parser.called(arguments)
    typed = typed_options(arguments[end:])
    defaults = tuple(
        default
        for default in default_values(command, path, option_sources)
        if not typed.intersection(command.exclusive_options(default.name))
    )
    if "--request" in typed:
        defaults = tuple(default for default in defaults if default.name not in REQUEST)
    return [*arguments[:end], *(word for default in defaults for word in default.words), *arguments[end:]], defaults


def default_values(command: Parser, path: tuple[str, ...], option_sources: Sequence[Source]) -> tuple[OptionDefault, ...]:
    """Default values of the command at ``path``, if nothing is typed.

    Raises:
        InputError, FileError: a value is not an option of the command, or has the wrong type.
    """
    if not path:
        return ()
    for source in option_sources:
        if isinstance(source, File):
            source.check(command, path)
    defaults = tuple(_configured_defaults(command, path, option_sources))
    has_file = any(default.name == "request" for default in defaults)
    return tuple(default for default in defaults if not (has_file and default.name in REQUEST))


def _configured_defaults(command: Parser, path: tuple[str, ...], option_sources: Sequence[Source]) -> Iterator[OptionDefault]:
    for name, action in _options(command).items():
        if values := [value for source in option_sources if (value := source.find(path, action))]:
            (value, source_name), *rest = values
            if words := tuple(_words(action, value, source_name)):
                yield OptionDefault(
                    name=name, words=words, source=source_name, overridden=tuple(overridden for _, overridden in rest)
                )


def _options(command: Parser) -> dict[str, argparse.Action]:
    action_types = (argparse._StoreAction, argparse._StoreTrueAction, argparse._AppendAction)
    return {action.dest: action for action in command._actions if action.option_strings and isinstance(action, action_types)}


def _words(action: argparse.Action, value: Any, source: str) -> Iterator[str]:
    """The option as it would be typed.

    Raises:
        InputError: the value has the wrong type.
    """
    option = action.option_strings[-1]
    if action.nargs == 0:
        word = str(value).lower()
        if word not in (*ON, *OFF):
            raise InputError(f"{source}: {value}", f"{option} is on or off", "write true or false")
        yield from [option] if word in ON else []
        return
    if isinstance(value, dict):
        value = [
            f"{name}={str(item_value).lower() if isinstance(item_value, bool) else item_value}"
            for name, item_value in value.items()
        ]
    repeated = isinstance(action, argparse._AppendAction)
    if repeated and isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise InputError(f"{source}: {value}", f"cannot be parsed: {error}", "write a list of values") from None
    values = value if isinstance(value, list) else [value]
    if len(values) > 1 and not repeated:
        raise InputError(f"{source}: {values}", f"{option} takes one value", "leave one")
    for item in values:
        if isinstance(item, dict | list | bool):
            raise InputError(f"{source}: {item}", f"{option} takes a text or a number", "write it as at the command line")
        yield f"{option}={item}"
