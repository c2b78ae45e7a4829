"""The words of a command by which accelerate starts a program: the launcher's options come before the program, its own after."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from strategist.formats.shell import SHOWS, Command, Word

_MENTIONED = re.compile(r"accelerate(\.commands\.launch|-launch|\s+launch)")
_MODULE = ("-m", "--module")
CONFIGS = (".yaml", ".yml", ".json")
"""How the files end in which trainers have their settings."""


def mentions_accelerate(text: str) -> bool:
    """Whether a script may start its program by ``accelerate launch``."""
    return _MENTIONED.search(text) is not None


def split(command: Command) -> tuple[Command, Command] | None:
    """The options of ``accelerate launch``, and the program with its own; None of another command. A file of settings that follows
    the program alone is written as ``--config``. Where it cannot be told which word is the program, all words are of both."""
    words = tuple(_apart(command.words))
    texts = [word.text for word in words]
    start = next((index for index in range(len(texts)) if _launches(texts[index : index + 2])), None)
    if start is None or texts[0] in SHOWS:
        return None
    words = words[start:]
    at = _program(texts[start:])
    if at is None:
        return replace(command, words=words), replace(command, words=words)
    program, after = words[at], words[at + 1 :]
    if after and after[0].text.endswith(CONFIGS):
        after = (replace(after[0], text="--config"), *after)
    return replace(command, words=words[:at]), replace(command, words=(program, *after))


def _apart(words: Sequence[Word]) -> Iterator[Word]:
    """The words, those of a quoted command by themselves."""
    for word in words:
        inner = word.text.split() if mentions_accelerate(word.text) else [word.text]
        yield from (replace(word, text=text) for text in inner)


def _launches(texts: Sequence[str]) -> bool:
    name = PurePosixPath(texts[0]).name
    return name in ("accelerate-launch", "accelerate.commands.launch") or (name == "accelerate" and texts[1:] == ["launch"])


def _program(texts: Sequence[str]) -> int | None:
    """Where the program stands: a Python file, a module, or the first word that is neither an option nor an option's value."""
    numbered = list(enumerate(texts))[2:] if texts[0].endswith("accelerate") else list(enumerate(texts))[1:]
    named = (at for at, text in numbered if text.endswith(".py") or texts[at - 1] in _MODULE)
    plain = (at for at, text in numbered if not text.startswith("-") and (texts[at - 1][:1] != "-" or "=" in texts[at - 1]))
    return next(named, next(plain, None))
