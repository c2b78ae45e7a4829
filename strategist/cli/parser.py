"""The argument parser: argparse with one-line errors, and argument types with clear errors."""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NoReturn

from strategist.errors import InputError, StrategistError, did_you_mean
from strategist.files import outputs

Command = Callable[[argparse.Namespace], int]
"""Runs a parsed command and returns its exit code."""

_UNKNOWN = re.compile(r"unrecognized arguments: (\S+)(.*)")
_NO_VALUE = re.compile(r"argument (\S+): expected one argument")
_VALUE = re.compile(r"argument (-\S+): invalid choice: '?([^' ]*)'? \(choose from (.*)\)")
_CHOICE = re.compile(r"argument \S+: invalid choice: '?([^' ]*)'? \(.*")


class UsageError(StrategistError):
    """An invalid command line; shown like other errors, without the usage text."""

    code = "invalid_arguments"


class UnknownOptionError(UsageError):
    """An argument that the called command does not have; ``advice``: similar options, or where to look."""

    def __init__(self, argument: str, command: str, advice: str) -> None:
        super().__init__(f"{argument} is not an argument of {command}; {advice}")
        self.option = argument.partition("=")[0]


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises instead of exiting, and suggests the nearest option."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Adds an argument as argparse does; a positional file may be ``-``, standard input."""
        action = super().add_argument(*names, **settings)
        if not action.option_strings and action.type is None and path_kind(action) == "file":
            action.type = _input_path
        return action

    def error(self, message: str) -> NoReturn:
        if match := _UNKNOWN.match(message):
            name, hint = match.group(1), _nearest_hint(match.group(1).partition("=")[0], self.known_options())
            raise UnknownOptionError(name, self.prog, hint or f"see {self._called()} --help")
        if match := _VALUE.match(message):
            option, value, known_values = match.groups()
            raise UsageError(f"{option} {value}: is not known; choose one of {known_values.replace(chr(39), '')}")
        if match := _CHOICE.match(message):
            commands = self.known_commands()
            hint = _nearest_hint(match.group(1), commands)
            raise UsageError(f"{match.group(1)} is not a command of {self.prog}; {hint or 'known are ' + ', '.join(commands)}")
        if match := _NO_VALUE.match(message):
            option = match.group(1)
            raise UsageError(
                f"{option} needs a value, and one that begins with a minus is taken for an option; see {self.prog} --help"
            )
        raise UsageError(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def known_options(self) -> list[str]:
        """All options of this parser and of its subcommands."""
        options = self.own_options()
        for command in self._commands().values():
            options += command.known_options()
        return options

    def own_options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]

    def known_commands(self) -> list[str]:
        return list(self._commands())

    def called(self, arguments: Sequence[str]) -> tuple["Parser", tuple[str, ...], int]:
        """The command that the arguments name, the words of its name, and the position after these."""
        parser, words, end = self, list[str](), 0
        for index, word in enumerate(arguments):
            if not (subcommands := parser._commands()):
                break
            if not word.startswith("-"):
                if word not in subcommands:
                    break
                parser, end = subcommands[word], index + 1
                words.append(word)
        return parser, tuple(words), end

    def exclusive_options(self, name: str) -> set[str]:
        """Spellings of an option, and of the options that exclude it."""
        same_dest = [action for action in self._actions if action.dest == name]
        groups = (group._group_actions for group in self._mutually_exclusive_groups if same_dest[0] in group._group_actions)
        return {option for action in [*same_dest, *chain(*groups)] for option in action.option_strings}

    def subcommands(self, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Parser"]]:
        """This parser and all subcommands, with the words of their names."""
        yield words, self
        for name, parser in self._commands().items():
            yield from parser.subcommands((*words, name))

    def _called(self) -> str:
        """The command that is called: the one whose options are there."""
        complete = [command.prog for command in self._commands().values() if len(command._actions) > 1]
        return complete[0] if len(complete) == 1 else self.prog

    def _commands(self) -> dict[str, "Parser"]:
        groups = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return {name: parser for group in groups for name, parser in group.choices.items()}


def _input_path(text: str) -> str:
    return outputs.STANDARD_INPUT if text == "-" else text


FILES, FOLDERS = {"FILE", "PLAN", "OTHER", "PATH"}, {"DIR", "STUDY"}
"""Metavars of options that take files, and of those that take folders."""


def path_kind(option: argparse.Action) -> str:
    """``file`` or ``folder`` if the option takes such a path; else empty."""
    words = set(re.split(r"[^A-Z]+", str(option.metavar)))
    return "file" if words & FILES else "folder" if words & FOLDERS else ""


def add_output(parser: Parser, *names: str, metavar: str = "FILE", **settings: Any) -> None:
    """Adds an option for the output path, and ``--force``; ``-`` is standard output if the output is a file."""

    prints = metavar not in FOLDERS or "default" not in settings
    option = parser.add_argument(*names, type=output_path(names[-1], metavar, prints=prints), metavar=metavar, **settings)
    parser.add_argument("--force", action="store_true", help="replace existing files that this command did not write")
    parser.set_defaults(written=option.dest)


def output_path(name: str, metavar: str, *, prints: bool = False) -> Callable[[str], str]:
    """Type of an output option; with ``prints`` an empty path prints the files of a folder."""

    def parse(text: str) -> str:
        if not text:
            raise InputError(name, "is empty", f"name a {'folder' if metavar in FOLDERS else 'file'}")
        if text != "-":
            return text
        if not prints:
            raise InputError(f"{name} -", "is standard output, which holds no folder", "name a folder")
        return "" if metavar in FOLDERS else outputs.STANDARD_OUTPUT

    return parse


def option_name(name: str) -> str:
    """The option of a field of the parsed namespace: ``--seq-len`` of ``seq_len``."""
    return f"--{name.replace('_', '-')}"


def typed_options(arguments: Iterable[str]) -> set[str]:
    """Names of the options among command line arguments."""
    return {argument.partition("=")[0] for argument in arguments if argument.startswith("-")}


def positive(name: str) -> Callable[[str], int]:
    """Type of an option: a whole number above 0."""

    def parse(text: str) -> int:
        number = whole(name)(text)
        if number < 1:
            raise InputError(f"{name} {text}", "must be at least 1", "give a positive number")
        return number

    return parse


def whole(name: str) -> Callable[[str], int]:
    """Type of an option: a whole number."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[-+]?[0-9]{1,12}", text, re.ASCII):
            raise InputError(
                f"{name} {text}", "a whole number of at most 12 digits is needed", f"{_whole_number_hint(text)}write e.g. {name} 8"
            )
        return int(text)

    return parse


_SCALES = {"": 1, "k": 2**10, "m": 2**20}


def _whole_number_hint(text: str) -> str:
    """``did you mean 8192? Else `` of ``8k`` and ``8,192``; else nothing."""
    match = re.fullmatch(r"([0-9]{1,6}|[0-9]{1,3}(?:[,_][0-9]{3}){1,3})([km]?)", text.lower(), re.ASCII)
    if match is None:
        return ""
    return f"did you mean {int(match[1].replace(',', '').replace('_', '')) * _SCALES[match[2]]}? Else "


def above_zero(name: str) -> Callable[[str], float]:
    """Type of an option: a number above 0."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text, re.ASCII) or not float(text):
            raise InputError(f"{name} {text}", "a number above 0 is needed", f"write e.g. {name} 0.5")
        return float(text)

    return parse


def share(name: str) -> Callable[[str], float]:
    """Type of an option: a share, such as 0.9 or 90%."""

    def parse(text: str) -> float:
        number, sign = text.removesuffix("%"), text.endswith("%")
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", number, re.ASCII):
            raise InputError(f"{name} {text}", "a share is needed", f"write e.g. {name} 0.9")
        return float(number) / (100 if sign else 1)

    return parse


def _nearest_hint(name: str, known: list[str]) -> str:
    """Similar options or commands; the dashes, which all options share, make none similar."""
    same_form = [other for other in known if other.startswith("-") == name.startswith("-")]
    return did_you_mean(name, same_form, count=2, cutoff=0.75, key=_bare) or did_you_mean(name, same_form, key=_bare)


def _bare(name: str) -> str:
    return name.lstrip("-").lower()
