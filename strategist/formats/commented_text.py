"""Writes YAML, TOML, JSON and shell scripts, quoted as each requires, with remarks (comments) beside lines."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategist.files import yaml_file

WIDTH = 120
_BLOCK = re.compile(r"[!-~][ -~]*\n((?:[ -~]*[!-~])?\n)*(?:[ -~]*[!-~])\n")
"""Texts of several lines that a YAML literal block holds unchanged."""

_PLAIN = re.compile(r"[^\x20-\x7e\u00a0-\u2027\u2030-\ud7ff\ue000-\ufffd]+")


def remark(text: str) -> str:
    """A comment on one line, without characters that a terminal or a parser could interpret."""
    return "# " + _PLAIN.sub(" ", text).strip()


def heading(lines: Sequence[str]) -> str:
    """Comments at the head of a file."""
    return "".join(f"{remark(line)}\n" if line else "#\n" for line in lines)


def yaml_text(data: Mapping[str, Any], remarks: Mapping[str, str] | None = None) -> str:
    """Nested data as YAML, one value a line; ``remarks``, by dotted name, are written beside the values."""
    return "".join(f"{line}\n" for line in _yaml_lines(data, remarks or {}, "", ""))


def _yaml_lines(data: Mapping[str, Any], remarks: Mapping[str, str], prefix: str, indent: str) -> Iterator[str]:
    for key, value in data.items():
        name, shown = f"{prefix}{key}", yaml_file.scalar(key)
        if isinstance(value, Mapping) and value:
            yield _with_remark(f"{indent}{shown}:", remarks.get(name))
            yield from _yaml_lines(value, remarks, f"{name}.", f"{indent}  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield _with_remark(f"{indent}{shown}:", remarks.get(name))
            for item in value:
                first, *rest = _yaml_lines(item, {}, "", f"{indent}    ")
                yield f"{indent}  - {first.strip()}"
                yield from rest
        elif isinstance(value, str) and _BLOCK.fullmatch(value):
            yield _with_remark(f"{indent}{shown}: |", remarks.get(name))
            yield from (f"{indent}  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
        else:
            yield _with_remark(f"{indent}{shown}: {yaml_file.scalar(value)}", remarks.get(name))


def toml_text(data: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of values as TOML."""
    return "\n".join(
        "".join((f"[{section}]\n", *(f"{key} = {_toml_value(value)}\n" for key, value in values.items())))
        for section, values in data.items()
    )


def _toml_value(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return f'"{"".join(map(_toml_character, value))}"' if isinstance(value, str) else json.dumps(value)


def _toml_character(letter: str) -> str:
    """A character of a TOML string; quotes, backslashes and characters outside printable ASCII are escaped."""
    return letter if " " <= letter <= "~" and letter not in '"\\' else f"\\U{ord(letter):08x}"


def json_text(data: Mapping[str, Any]) -> str:
    """Nested data as JSON, which has no comments."""
    return json.dumps(data, indent=2, ensure_ascii=True) + "\n"


class Shell(str):
    """A word that is written into a shell script as it is. Any other word is data, and is quoted."""

    __slots__ = ()


def shell_words(words: Sequence[str]) -> str:
    """Words as a line of shell."""
    return " ".join(word if isinstance(word, Shell) else shlex.quote(word) for word in words)


OWN_FOLDER = 'cd -- "$(dirname -- "${BASH_SOURCE[0]}")"'
"""Changes into the folder of the script, where the other files are."""

REMAINING_ARGUMENTS = Shell('"$@"')
"""The arguments that a script is called with."""


def script(
    command: Sequence[str],
    arguments: Sequence[tuple[Sequence[str], str]],
    *,
    about: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    first: Sequence[str] = (),
) -> str:
    """A shell script that runs ``command`` with ``arguments``, each a line of words with its remark, in the script's own folder;
    every word is quoted.

    The arguments that the script is called with follow, unless the command has them already. ``first``: shell lines before all
    others.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    lines = [_with_remark("  " + shell_words(words), note) for words, note in arguments]
    remaining_arguments = () if REMAINING_ARGUMENTS in command else (REMAINING_ARGUMENTS,)
    array, array_words = (["arguments=(", *lines, ")"], (Shell('"${arguments[@]}"'),)) if lines else ([], ())
    body = [
        "set -euo pipefail",
        OWN_FOLDER,
        *first,
        *exports,
        *array,
        f"exec {shell_words((*command, *array_words, *remaining_arguments))}",
    ]
    return "#!/usr/bin/env bash\n" + heading(about) + "\n".join(body) + "\n"


def _with_remark(line: str, note: str | None) -> str:
    return f"{line}  {remark(note)}" if note else line
