"""Files that another file names by a path, such as the trainer's config file that a start script names."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from strategist.errors import FileError
from strategist.formats import shell
from strategist.formats.accelerate_launch import CONFIGS, default_file
from strategist.formats.source import Entry, Source, load

CONFIG = "config"
"""Flag of a script that names its trainer's config file (TRL's ``TrlParser``)."""


def find_file(path: str, value: str) -> Path | None:
    """The file that ``path`` names as ``value``; None if it does not exist.

    The name is relative to the folder of ``path``, to a folder above it up to the repository's root, or to the working folder.
    """
    folders = Path(path).resolve().parents
    root = next((index for index, folder in enumerate(folders) if os.path.exists(folder / ".git")), len(folders))
    candidates = (folder / value for folder in (*folders[: root + 1], Path()))
    found = next(
        (candidate for candidate in candidates if os.path.isfile(candidate)), None
    )  # os.path: an impossible file name is not an error
    working_folder = Path.cwd()
    return found.relative_to(working_folder) if found and found.is_relative_to(working_folder) else found


def with_config(source: Source) -> Source:
    """The script with the entries of the config file that it names; the script's own flags override them.

    Raises:
        FileError: the file exists and cannot be read.
    """
    named = source.entries.get(CONFIG)
    path = find_file(source.path, str(named.value)) if source.launch and named and str(named.value).endswith(CONFIGS) else None
    if path is None:
        return source
    script_entries = {name: entry for name, entry in source.entries.items() if name != CONFIG}
    file_entries = {
        entry.name: entry for entry in named_entries(load(path)) if not any(_within(entry.name, name) for name in script_entries)
    }
    return replace(source, language="yaml", entries={**file_entries, **script_entries})


def started_files(source: Source) -> Iterator[Path]:
    """Existing files that the commands of a script name, in their order: programs in Python and files with settings."""
    if source.launch is not None:
        for name in _named_files(source):
            if path := find_file(source.path, name):
                yield path


def _named_files(source: Source) -> Iterator[str]:
    """Names of programs in Python and of files with settings among the words of a script's commands."""
    for command in shell.commands(source.text):
        texts = [word.text.rpartition("=")[2] for word in command.words]
        if command.runs and texts[0] not in shell.UTILITIES:
            yield from (text for text in texts if text.endswith((*CONFIGS, ".toml", ".py")) and not set(text) & set("$*?["))


def _started_scripts(source: Source) -> Iterator[str]:
    """Existing shell scripts that a script's commands start."""
    for command in shell.commands(source.text):
        if command.runs and command.words[0].text not in shell.UTILITIES:
            texts = (word.text for word in command.words)
            yield from (text for text in texts if text.endswith(".sh") and find_file(source.path, text))


def named_entries(file: Source) -> tuple[Entry, ...]:
    """The entries of a file, each with the path of the file that it is in."""
    return tuple(replace(entry, path=entry.path or file.path) for entry in file.entries.values())


def unread(source: Source) -> FileError | None:
    """The error of a script whose settings stand in a file that is not there, or in its program; None of another."""
    if source.language == "command" and (scripts := list(dict.fromkeys(_started_scripts(source)))):
        text = f"states no settings of a known format, and starts {', '.join(scripts)}"
        return FileError(source.path, f"{text}; check that script, with the values that this one gives it")
    named = source.entries.get(CONFIG)
    if named is None and source.launch and source.launch.accelerate:
        config_file = source.launch.options.get("config_file")
        file = shlex.quote(str(config_file.value if config_file else default_file()))
        command = f"strategist check {file} --model MODEL --gpus GPUS"
        return FileError(
            source.path, f"its settings are in its program, which is not read; check the launcher's settings with {command}"
        )
    if source.launch is not None and named is None and (names := list(dict.fromkeys(_named_files(source)))):
        text = f"states no settings of a known format, and starts {', '.join(names)}: none of them is there with settings"
        return FileError(source.path, f"{text}; check the file that holds the settings")
    if source.launch is None or named is None or not ("$" in str(named.value) or str(named.value).endswith(CONFIGS)):
        return None
    reason = "is known only where the script runs" if "$" in str(named.value) else "is not found from the script's folder up"
    law = f"--config {named.value}: the file {reason}; write its path, or check that file itself"
    return FileError(source.path, law, named.line)


def _within(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")
