"""Sources: other systems' files in any language, as flat entries with their positions."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from strategist.errors import FileError
from strategist.files import yaml_file
from strategist.formats import accelerate_launch, shell
from strategist.frozen import frozen

MAX_SHOWN_CHARACTERS = 60


@frozen
class Entry:
    """A value by its dotted name, such as ``zero_optimization.stage``; a list is one value.

    line, column: counted from 1.
    path: the file of the entry, if it is not the source's own.
    """

    name: str
    value: Any
    line: int | None = None
    column: int | None = None
    path: str = ""


@frozen
class Launch:
    """Launch command of a script: whether it is ``accelerate launch``, and the launcher's options by name, with ``_``.

    before: flags before the program of a command without accelerate: those of srun, torchrun and deepspeed.
    trl: the trainer of TRL that the command starts, such as ``sft``; empty without one.
    """

    accelerate: bool
    options: Mapping[str, Entry]
    before: frozenset[str] = frozenset()
    trl: str = ""


@frozen
class Source:
    """Content of a configuration file.

    language: json, yaml, toml, command (a shell script or a line of flags) or python, whose entries the format itself finds.
    part: the requested function of a Python file.
    unread: flags of further commands of a script that start a program of the same kind, by line.
    launch: the launcher of a script; None for other files.
    relaxed: JSON with comments or trailing commas.
    """

    path: str
    text: str = field(repr=False)
    language: str
    entries: Mapping[str, Entry] = field(repr=False)
    part: str = ""
    unread: Mapping[int, Mapping[str, Entry]] = field(default_factory=dict, repr=False)
    launch: Launch | None = field(default=None, repr=False)
    relaxed: bool = False

    def has(self, *names: str) -> bool:
        """Whether each of ``names`` is an entry or has entries below it."""
        return all(any(known == name or known.startswith(f"{name}.") for known in self.entries) for name in names)

    def error(self, name: str, message: str) -> FileError:
        """An error at the position of an entry."""
        entry = self.entries.get(name)
        return FileError(entry.path or self.path, message, entry.line, entry.column) if entry else FileError(self.path, message)


_FUNCTION = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


def load(path: str | Path, *, relaxed: bool = False) -> Source:
    """The file, in the language that its content is written in; ``FILE.py:NAME`` is a function of a Python file. ``relaxed`` reads
    JSON with comments and with commas at ends, too.

    Raises:
        FileError: it cannot be read, or is in none of the languages.
    """
    if (named := _FUNCTION.fullmatch(str(path))) and not Path(path).exists():
        return replace(load(named[1]), part=named[2])
    text = yaml_file.read_text(path)
    plain = relaxed_json(text) if relaxed and _language(text, Path(path).suffix.lower()) == "json" else text
    return replace(parse(plain, str(path)), relaxed=plain != text)


def parse(text: str, path: str = "<text>") -> Source:
    """The source of a text.

    Raises:
        FileError: it is in none of the languages.
    """
    language = _language(text, Path(path).suffix.lower())
    if language == "command":
        read, unread = _commands(text, path)
        flags, launch = _launch(read, text)
        return Source(path=path, text=text, language=language, entries=flags, unread=unread, launch=launch)
    try:
        entries = {entry.name: entry for entry in _READERS[language](text, path)}
    except FileError as error:
        raise _unrendered(text, error) or _manifest(text, path) or error from None
    return Source(path=path, text=text, language=language, entries=entries)


_MANIFEST = re.compile(r"^apiVersion:.*(?:\n.*)*?^kind:", re.MULTILINE)


def _manifest(text: str, path: str) -> FileError | None:
    """The error of a manifest of Kubernetes, whose several documents no reader of configurations takes; None of other text."""
    law = "is a manifest of Kubernetes, which is not read; give check the configuration or the start script that it holds"
    return FileError(path, law) if _MANIFEST.search(text) else None


_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")


def _unrendered(text: str, error: FileError) -> FileError | None:
    """The error of an unrendered template, if the line of ``error`` holds one; otherwise None."""
    lines = text.splitlines()
    if error.line is None or error.line > len(lines):
        return None
    found = _TEMPLATE.search(lines[error.line - 1].partition("#")[0])
    if found is None:
        return None
    message = f"the file is an unrendered template: {found[0][:MAX_SHOWN_CHARACTERS]} stands here; render it first"
    return FileError(error.path, message, error.line, found.start() + 1)


def _language(text: str, suffix: str) -> str:
    """The language, by the file's suffix if it is known, otherwise by the form of the text."""
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if text.lstrip().startswith("{"):
        return "json"
    if re.search(r"^\s*(import|from|def|class) \w", text, re.MULTILINE):
        return "python"
    if re.search(r"^\s*\[[\w.]+\]\s*(#.*)?$", text, re.MULTILINE):
        return "toml"
    return "command" if re.search(r"(^|\s)--\w", text) else "yaml"


def _yaml(text: str, path: str) -> Iterator[Entry]:
    yield from _leaves(yaml_file.parse(text, path))


_QUOTED = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_QUOTED}|//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_QUOTED}|,(?=\s*[}}\]])")


def relaxed_json(text: str) -> str:
    """JSON without its comments (``//``, ``#``, ``/* */``) and commas at ends, with everything else in its place."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _json(text: str, path: str) -> Iterator[Entry]:
    """Entries of JSON, parsed as YAML for their positions. YAML allows no tabs, which in JSON occur only between values."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(path, f"is not JSON: {error.msg}; correct it", error.lineno, error.colno) from None
    except RecursionError:
        raise FileError(path, "is nested too deeply; name another file") from None
    except ValueError as error:
        raise FileError(path, f"is not JSON: {error}; correct it") from None
    yield from _leaves(yaml_file.parse(text.replace("\t", " "), path))


def _leaves(document: yaml_file.Document) -> Iterator[Entry]:
    """Values of nested mappings that are not mappings themselves."""
    if not isinstance(document.data, dict):
        raise FileError(
            document.path,
            "holds no settings: a mapping of names to values is needed; name a configuration file, see strategist check --help",
        )

    def below(key_path: tuple[str, ...], value: Any) -> Iterator[Entry]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from below((*key_path, key), inner)
        else:
            line, column = document.mark(key_path, key=True)
            yield Entry(name=_dotted_name(key_path), value=value, line=line, column=column)

    for key, value in document.data.items():
        yield from below((key,), value)


def _dotted_name(key_path: tuple[str, ...]) -> str:
    """Dotted name of a key; a key that is a flag is named as on a command line, whatever section it is in."""
    return key_path[-1][2:] if key_path[-1].startswith("--") else ".".join(key_path)


_SECTION = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"(\s*)([\w.-]+)\s*=")


def _toml(text: str, path: str) -> Iterator[Entry]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(path, f"is not TOML: {error}; correct it") from None
    except RecursionError:
        raise FileError(path, "is nested too deeply; name another file") from None
    positions: dict[str, tuple[int, int]] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := _SECTION.match(line):
            section = f"{head[1]}."
        elif key := _KEY.match(line):
            positions.setdefault(section + key[2], (number, len(key[1]) + 1))

    for name, value in leaves("", data):
        line_number, column = positions.get(name, (None, None))
        yield Entry(name=name, value=value, line=line_number, column=column)


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Values of nested mappings that are no mappings themselves, by dotted names below ``name``; any other value as ``name``."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, value


_OPTION, _NUMBER = re.compile(r"(^|\s)--\w"), re.compile(r"-\.?\d")
_SETTING = re.compile(r"(\w[\w.]*)=(.*)", re.DOTALL)


def _commands(text: str, path: str) -> tuple[list[shell.Command], dict[int, dict[str, Entry]]]:
    """The commands of a script that count, and by line the flags of the others.

    Of several commands that start the same program, only the last counts, because a plan describes one training. ``cd`` starts
    none.
    """
    try:
        all_commands = [command for command in shell.commands(text) if command.words[0].text != "cd"]
    except RecursionError:
        raise FileError(path, "is nested too deeply; name another file") from None
    programs = [shell.program(command) for command in all_commands]
    last = {program: index for index, program in enumerate(programs) if program}
    counted = [last.get(program, index) == index for index, program in enumerate(programs)]
    unread = {command.line: _all_flags(command) for command, counts in zip(all_commands, counted, strict=True) if not counts}
    return [command for command, counts in zip(all_commands, counted, strict=True) if counts], unread


def _launch(read: Sequence[shell.Command], text: str) -> tuple[dict[str, Entry], Launch]:
    """The flags of the program that a script starts, and how the script starts it."""
    parts = [accelerate_launch.split(command) for command in read]
    flags = _merged_flags([part[1] if part else command for command, part in zip(read, parts, strict=True)])
    options = {name.replace("-", "_"): entry for name, entry in _merged_flags([part[0] for part in parts if part]).items()}
    flags |= {name: entry for name, entry in options.items() if "$" in name}  # may expand to any flag
    program_flags = frozenset(
        name for command, part in zip(read, parts, strict=True) if not part for name in _flags_before_program(command.words)
    )
    accelerate = any(parts) or accelerate_launch.mentions_accelerate(text)
    trainer = next(filter(None, map(accelerate_launch.trl_trainer, read)), "")
    return flags, Launch(accelerate=accelerate, options=options, before=program_flags, trl=trainer)


_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")


def _flags_before_program(words: Sequence[shell.Word]) -> Iterator[str]:
    """Names of the flags before the Python program of a command; of ``srun bash -c "torchrun ..."``, of both launchers."""
    for index, word in enumerate(words):
        module = word.text in ("-m", "--module") and not (words[index + 1 :] and words[index + 1].text in _LAUNCHER_MODULES)
        if word.text.endswith(".py") or module:
            yield from _flags(words[:index])
            return
        if not word.text.startswith("--") and _OPTION.search(word.text):
            yield from _flags(words[:index])
            yield from _flags_before_program([replace(word, text=text) for text in word.text.split()])
            return


def _all_flags(command: shell.Command) -> dict[str, Entry]:
    """The flags of a program and of its launcher."""
    return {name: entry for part in accelerate_launch.split(command) or (command,) for name, entry in _flags(part.words).items()}


def _merged_flags(commands: Sequence[shell.Command]) -> dict[str, Entry]:
    """Flags of commands.

    ``--name value``, ``--name=value`` and ``name=value`` are equal; a flag without a value is true. A later flag overrides an
    earlier one, unless a condition decides between their commands: then its value has a ``$``, like every value that is known
    only at run time.
    """
    found: dict[str, Entry] = {}
    decided: set[str] = set()
    for command in commands:
        starts = not command.words or command.words[0].text not in shell.UTILITIES
        for entry in _flags(command.words).values():
            if "$" in entry.name and not starts:
                continue
            earlier = found.get(entry.name)
            if earlier is not None and not command.runs:
                continue
            if earlier is not None and earlier.value != entry.value and (not command.certain or entry.name in decided):
                entry = replace(entry, value=shell.CONDITION % entry.value)
            found[entry.name] = entry
            if not command.certain:
                decided.add(entry.name)
    return found


def _flags(words: Sequence[shell.Word]) -> dict[str, Entry]:
    """The flags among the words of a command; a quoted command's flags count as its own."""
    found: dict[str, Entry] = {}
    decided: set[str] = set()
    open_flag: Entry | None = None
    for word in words:
        text, assignment = word.text, _SETTING.fullmatch(word.text)
        if text.startswith("--") and len(text) > 2:
            name, equals, value = text[2:].partition("=")
            found[name] = open_flag = Entry(name=name, value=value if equals else True, line=word.line)
            decided = decided - {name} if word.certain else decided | {name}
            open_flag = None if equals else open_flag
        elif (text.startswith("-") and not _NUMBER.match(text)) or text.endswith((".py", ".sh")) or text in ("\\", "--"):
            open_flag = None  # a short option, or the program, whose own arguments follow
        elif open_flag is not None and (open_flag.value is True or "$" not in text):
            value = text if open_flag.value is True else f"{open_flag.value} {text}"
            found[open_flag.name] = open_flag = replace(open_flag, value=value)
        elif _OPTION.search(text):
            found |= _flags([shell.Word(text=inner, line=word.line) for inner in text.split()])
        elif text.split()[:1] and text.split()[0] in shell.UTILITIES:
            continue
        elif assignment or (text.startswith("$") and ("$(" in text or not word.certain)):  # other text is no flag
            name, value = (assignment[1], assignment[2]) if assignment else (text, text)
            found[name] = Entry(name=name, value=value, line=word.line)
    return found | {name: replace(found[name], value=shell.CONDITION % found[name].value) for name in decided}


def _no_entries(text: str, path: str) -> Iterator[Entry]:
    return iter(())


_READERS: dict[str, Callable[[str, str], Iterator[Entry]]] = {
    "json": _json, "yaml": _yaml, "toml": _toml, "python": _no_entries,
}  # fmt: skip
_SUFFIXES = {
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".sh": "command",
    ".bash": "command",
    ".py": "python",
}
