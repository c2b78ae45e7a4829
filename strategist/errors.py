"""Errors caused by user input. Each is one line: the value, the law that it breaks, and the next step."""

from collections.abc import Iterable
from difflib import get_close_matches


class StrategistError(Exception):
    """Shown as one line at the shell, without a traceback; the command exits with 2."""

    code: str = "invalid_value"
    """What kind of error it is, in a word that stays; agents read the same one."""
    place: str = ""
    """Where in a document the value stands, such as ``Plan.model.layers``; empty where none was read."""


class InputError(StrategistError):
    """An input value that breaks a law.

    Args:
        value: the value as it was given, with its name, e.g. ``--gpus 8x``.
        law: what it breaks, e.g. ``a count and a device are needed``.
        do: the way out, e.g. ``write 8x24GB or 16x8xH100``.
    """

    def __init__(self, value: str, law: str, do: str) -> None:
        super().__init__(f"{value}: {law}; {do}")
        self.value, self.law, self.do = value, law, do

    @classmethod
    def parsed(cls, line: str, do: str) -> "InputError":
        """The error of a line as it is printed, of which only the law has to be there; ``do`` stands in for a missing way out."""
        value, _, rest = line.partition(": ")
        law, _, way = (rest or line).rpartition("; ")
        return cls(value if rest else "plan", law or way, way if law else do)


class FileError(StrategistError):
    """A file cannot be read as what it should be; names the file and, where known, line and column."""

    code = "unreadable_file"

    def __init__(self, path: object, message: str, line: int | None = None, column: int | None = None) -> None:
        message = " ".join(message.splitlines())
        place = str(path) + (f":{line}" if line else "") + (f":{column}" if line and column else "")
        super().__init__(f"{place}: {message}")
        self.path, self.message, self.line, self.column = str(path), message, line, column


def near_miss(word: str, known: Iterable[str]) -> str:
    """``did you mean 1f1b? Else `` where a known word is close, or goes on from it; else nothing."""
    known = tuple(known)
    near = get_close_matches(word.lower(), known, n=1) or [
        name for name in known if len(word) > 2 and name.startswith(word.lower())
    ]
    return f"did you mean {near[0]}? Else " if near else ""


def not_among(value: str, word: str, known: Iterable[str], law: str = "is not known") -> InputError:
    """The error of a ``word`` that is none of those; ``value`` is as it was given, with its name."""
    known = tuple(filter(None, known))
    return InputError(value, law, f"{near_miss(word, known)}choose one of {', '.join(known)}")
