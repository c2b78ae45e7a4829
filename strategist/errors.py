"""Errors caused by user input. Each message is one line: the value, the rule that it violates, and the next step."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches


class StrategistError(Exception):
    """Base class of errors that the command line shows as one line without a traceback, with exit code 2."""

    code: str = "invalid_value"
    """Stable code of the kind of error; agents receive the same code."""
    field_path: str = ""
    """Path of the value in a document, such as ``Plan.model.layers``; empty where no document was read."""


class InputError(StrategistError):
    """An input value that violates a rule.

    Args:
        value: the value as given, with its name, e.g. ``--gpus 8x``.
        law: the violated rule, e.g. ``a count and a device are needed``.
        do: the next step, e.g. ``write 8x24GB or 16x8xH100``.
    """

    def __init__(self, value: str, law: str, do: str) -> None:
        super().__init__(f"{value}: {law}; {do}")
        self.value, self.law, self.do = value, law, do

    @classmethod
    def parsed(cls, line: str, do: str) -> "InputError":
        """Error parsed from its one-line message. Only the rule is required; ``do`` is the next step where the line has none."""
        value, _, rest = line.partition(": ")
        law, _, way = (rest or line).rpartition("; ")
        return cls(value if rest else "plan", law or way, way if law else do)


class FileError(StrategistError):
    """A file that cannot be read or written as expected; the message has the path and, where known, line and column."""

    code = "unreadable_file"

    def __init__(self, path: object, message: str, line: int | None = None, column: int | None = None) -> None:
        message = " ".join(message.splitlines())
        place = str(path) + (f":{line}" if line else "") + (f":{column}" if line and column else "")
        super().__init__(f"{place}: {message}")
        self.path, self.message, self.line, self.column = str(path), message, line, column


def did_you_mean(
    word: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6, key: Callable[[str], str] = str.lower
) -> str:
    """``did you mean 1f1b?``, with up to ``count`` known names that are similar to ``word``, nearest first; empty if none is.

    Args:
        cutoff: least similarity, from 0 to 1, as in difflib.
        key: the form in which names are compared.
    """
    names = {key(name): name for name in known}
    near = [names[match] for match in get_close_matches(key(word), names, n=count, cutoff=cutoff)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def not_among(value: str, word: str, known: Iterable[str], law: str = "is not known") -> InputError:
    """Error for a ``word`` that is not in ``known``; ``value`` is the input as given, with its name."""
    known = tuple(filter(None, known))
    longer = [name for name in known if len(word) > 2 and name.startswith(word.lower())]
    hint = did_you_mean(word, known) or did_you_mean(word, longer, cutoff=0)
    return InputError(value, law, f"{hint}{hint and ' Else '}choose one of {', '.join(known)}")
