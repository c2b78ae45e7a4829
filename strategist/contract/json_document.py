"""Reader of untrusted JSON: size limits, no duplicate keys, no NaN, and the position of every value for error messages."""

import json
import re
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from strategist.errors import FileError, StrategistError

MAX_BYTES, MAX_VALUES = 8 * 2**20, 100_000
MAX_SHOWN_CHARACTERS = 60

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


class DocumentError(StrategistError):
    """A text that is not an acceptable document; with line and column, from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class NoJsonError(DocumentError):
    """A text that is not JSON at all, such as a file whose writer was interrupted."""


def load(path: str | Path, *, any_size: bool = False) -> str:
    """Reads the text of a JSON document. ``any_size`` skips the size limits, for files that this program wrote.

    Raises:
        FileError: the file cannot be read, exceeds the limits, or is not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read() if any_size else file.read(MAX_BYTES + 1)
        text = raw.decode() if any_size or len(raw) <= MAX_BYTES else ""
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}; name another file") from None
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text; name another file") from None
    if not any_size and (len(raw) > MAX_BYTES or sum(map(text.count, "[{,")) > MAX_VALUES):
        raise FileError(path, f"is larger than {MAX_BYTES // 2**20} MiB or {MAX_VALUES} values; name another file")
    return text


def read(text: str) -> Any:
    """The JSON data in ``text``.

    Raises:
        NoJsonError: the text is not JSON.
        DocumentError: an object has a key twice, or a number is not finite or has thousands of digits.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise NoJsonError(f"not a JSON document: {error.msg}; correct it", error.lineno, error.colno) from None
    except RecursionError:
        raise NoJsonError("not a JSON document: nested too deeply; name another file") from None
    except _TwiceError as error:
        raise DocumentError(f"key {shown(error.args[0])} appears twice; leave one of them out", *_repeated_key(text)) from None
    except _ConstantError as error:
        law = f"{error.args[0]} is not a finite number; write another"
        raise DocumentError(law, *_line_and_column(text, _token(text, error.args[0]))) from None
    except ValueError:  # an integer with thousands of digits
        raise DocumentError("holds a number of thousands of digits; write a smaller one") from None


def shown(value: object) -> str:
    """``repr`` of a value, shortened to MAX_SHOWN_CHARACTERS."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def position(text: str, value_path: str, root: str) -> tuple[int, int]:
    """Line and column of the value at ``value_path``, such as ``Plan.model.layers``, in JSON whose outermost value is ``root``; of
    the start of the document if it has no such value.
    """
    parents = [root]
    for depth, step, start in _values(text) if value_path != root else ():
        del parents[depth + (not depth) :]
        if 0 < depth == len(parents):
            path = f"{parents[-1]}[{step}]" if isinstance(step, int) else f"{parents[-1]}.{step}"
            if path == value_path:
                return _line_and_column(text, start)
            if value_path.startswith(path):
                parents.append(path)
    return _line_and_column(text, 0)


class _TwiceError(ValueError):
    """A key that appears twice in an object."""


class _ConstantError(ValueError):
    """NaN or Infinity, which JSON does not have."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return data


def _refuse_constant(text: str) -> Any:
    raise _ConstantError(text)


def _token(text: str, word: str) -> int:
    return next(match.start() for match in _TOKEN.finditer(text) if match.group().startswith(word))


def _repeated_key(text: str) -> tuple[int, int]:
    """Line and column where an object repeats a key."""
    keys_by_depth: list[set[str | int]] = [set()]
    for depth, step, start in _values(text):
        del keys_by_depth[depth + 1 :]
        if step in keys_by_depth[depth]:
            return _line_and_column(text, start)
        keys_by_depth[depth].add(step)
        keys_by_depth.append(set())
    return _line_and_column(text, 0)


def _line_and_column(text: str, start: int) -> tuple[int, int]:
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def _values(text: str) -> Iterator[tuple[int, str | int, int]]:
    """Depth, key or index, and first character of each value in valid JSON."""
    above: list[int | None] = []
    item: int | None = None
    key = ""
    tokens = ((match.group(), match.start()) for match in _TOKEN.finditer(text))
    for (token, start), (following, _) in pairwise(chain(tokens, [("", 0)])):
        if following == ":":
            key = json.loads(token) if "\\" in token else token[1:-1]
        elif token in "]}":
            item = above.pop()
        elif token == "," and item is not None:
            item += 1
        elif token not in ",:":
            yield len(above), key if item is None else item, start
            if token in "[{":
                above.append(item)
                item = 0 if token == "[" else None
