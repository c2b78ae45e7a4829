"""Reads untrusted JSON within bounds: no duplicate keys, no NaN, and the position of every value."""

import json
import re
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from strategist.errors import FileError, StrategistError

MAX_BYTES, MAX_VALUES = 8 * 2**20, 100_000
LONGEST_SHOWN = 60

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


class DocumentError(StrategistError):
    """A text is no document that can be taken; with line and column, from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class NoJsonError(DocumentError):
    """A text is not even JSON, as where its writer was stopped."""


def load(path: str | Path, *, any_size: bool = False) -> str:
    """The text of a file that may be a document; of any size where this program wrote it itself.

    Raises:
        FileError: it cannot be read, is beyond the bounds, or is no text.
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
    """The data in ``text``.

    Raises:
        NoJsonError: that is what it is.
        DocumentError: a key twice in an object, or a number that is none.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise NoJsonError(f"not a JSON document: {error.msg}; correct it", error.lineno, error.colno) from None
    except RecursionError:
        raise NoJsonError("not a JSON document: nested too deeply; name another file") from None
    except _TwiceError as error:
        raise DocumentError(f"key {shown(error.args[0])} appears twice; leave one of them out", *_again(text)) from None
    except _ConstantError as error:
        law = f"{error.args[0]} is not a finite number; write another"
        raise DocumentError(law, *_mark(text, _token(text, error.args[0]))) from None
    except ValueError:  # a number of thousands of digits
        raise DocumentError("holds a number of thousands of digits; write a smaller one") from None


def shown(value: object) -> str:
    """As it stands in Python, shortened."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def position(text: str, place: str, root: str) -> tuple[int, int]:
    """Line and column of the value at ``place``, such as ``Plan.model.layers``, in JSON whose outermost value is ``root``; of the
    whole where it has none there."""
    way = [root]
    for depth, step, start in _values(text) if place != root else ():
        del way[depth + (not depth) :]
        if 0 < depth == len(way):
            here = f"{way[-1]}[{step}]" if isinstance(step, int) else f"{way[-1]}.{step}"
            if here == place:
                return _mark(text, start)
            if place.startswith(here):
                way.append(here)
    return _mark(text, 0)


class _TwiceError(ValueError):
    """A key that its object has already."""


class _ConstantError(ValueError):
    """A word for a number that is none."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return data


def _refuse_constant(text: str) -> Any:
    raise _ConstantError(text)


def _token(text: str, word: str) -> int:
    return next(match.start() for match in _TOKEN.finditer(text) if match.group().startswith(word))


def _again(text: str) -> tuple[int, int]:
    """Where an object has a key for the second time."""
    seen: list[set[str | int]] = [set()]
    for depth, step, start in _values(text):
        del seen[depth + 1 :]
        if step in seen[depth]:
            return _mark(text, start)
        seen[depth].add(step)
        seen.append(set())
    return _mark(text, 0)


def _mark(text: str, start: int) -> tuple[int, int]:
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def _values(text: str) -> Iterator[tuple[int, str | int, int]]:
    """Depth, key or index, and first character of each value, in a text that is JSON."""
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
