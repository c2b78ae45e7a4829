"""Reader of users' YAML files within limits: plain data with the position of every value.

The supported subset means the same to every YAML reader: no anchors, aliases, tags, merge keys or duplicate keys, YAML 1.2 core
scalars, no scalar that YAML 1.1 and 1.2 read as different numbers, and nothing that only PyYAML accepts (line breaks of YAML 1.1,
comments and tabs without a space before them, unindented lines in a bracket or quote). Limits: 256 KiB, 32 levels, 20,000 nodes.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist.errors import FileError, did_you_mean

if TYPE_CHECKING:
    from strategist.files.yaml_parser import Node

MAX_BYTES = 256 * 1024

KeyPath = Sequence[str | int]
"""Path of a value in a document: keys and indices from the root."""

_WORDS = re.compile(r"[A-Za-z_/][\w./+-]*( [\w./+-]+)*", re.ASCII)
_SPECIAL = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n"])
"""Words that YAML 1.1 does not read as text."""


@dataclass(frozen=True)
class Document:
    """Text of one YAML file within the subset. Its plain data and the positions of values are parsed on first use."""

    path: str
    text: str = field(repr=False)

    @classmethod
    def with_data(cls, path: object, text: str, data: Any) -> "Document":
        """Document of a text whose plain data are already known, so that it is not parsed."""
        document = cls(str(path), text)
        document.__dict__["data"] = data
        return document

    @cached_property
    def data(self) -> Any:
        """Plain data of the document, parsed on first use."""
        return self._parsed[0]

    @cached_property
    def _parsed(self) -> "tuple[Any, Node]":
        from strategist.files.yaml_parser import read  # not imported where the data come from the cache

        return read(self.text, self.path, MAX_BYTES)

    def mark(self, key_path: KeyPath, *, key: bool = False, offset: int | None = None) -> tuple[int, int]:
        """Line and column, from 1, of the value at ``key_path``, or of the innermost enclosing value that exists.

        Args:
            key: of the value's key instead; in a list, of the value itself.
            offset: of this character of a text on one line; of the start of another.
        """
        node = self._node(key_path)
        event, (line, column) = node.event, node.key_position if key else node.position
        if offset is None or not hasattr(event, "value") or event.end_mark.line != event.start_mark.line:
            return line, column
        return line, column + offset + (event.style in ("'", '"'))

    def span(self, key_path: KeyPath, *, key: bool = False) -> tuple[int, int]:
        """Start and end (exclusive) of the value at ``key_path``, or of its key, as character offsets from 0 in the file's text."""
        node = self._node(key_path)
        event = node.key if key and node.key else node.event
        return event.start_mark.index, event.end_mark.index

    def error(self, key_path: KeyPath, message: str, *, key: bool = False) -> FileError:
        """FileError with the position of the value at ``key_path``, or of its key."""
        return FileError(self.path, message, *self.mark(key_path, key=key))

    def mapping(self, key_path: KeyPath = ()) -> dict[str, Any]:
        """The mapping at ``key_path``.

        Raises:
            FileError: the value there is not a mapping.
        """
        data = self.data
        for step in key_path:
            data = data[step]
        if not isinstance(data, dict):
            name = ".".join(map(str, key_path)) or "the file"
            raise self.error(key_path, f"{name} must be a mapping of names to values; write NAME: VALUE")
        return data

    def mapping_with_keys(self, known: Iterable[str], key_path: KeyPath = ()) -> dict[str, Any]:
        """The mapping at ``key_path``, checked to have only ``known`` keys.

        Raises:
            FileError: an unknown key; the message suggests the nearest known one.
        """
        data, names = self.mapping(key_path), tuple(known)
        for name in data:
            if name not in names:
                hint = did_you_mean(name, names) or f"known are {', '.join(names)}"
                raise self.error([*key_path, name], f"unknown key {name!r}; {hint}", key=True)
        return data

    def _node(self, key_path: KeyPath) -> "Node":
        node = self._parsed[1]
        for step in key_path:
            children = node.children
            exists = step in children if isinstance(children, dict) else isinstance(children, list) and step in range(len(children))
            if not exists:
                break
            node = children[step]
        return node


def load(path: str | Path) -> Document:
    """The document in a file.

    Raises:
        FileError: the file cannot be read, or is not within the subset; with line and column where known.
    """
    return parse(read_text(path), path)


def read_text(path: str | Path) -> str:
    """Text of a file, without a byte-order mark.

    Raises:
        FileError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}; name another file") from None
    if len(raw) > MAX_BYTES:
        raise FileError(path, f"is larger than {MAX_BYTES // 1024} KiB; name another file")
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text; name another file") from None


def dump(data: dict[str, Any]) -> str:
    """Plain data as YAML, keys in their order; short lists on one line."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    return text


def scalar(value: Any) -> str:
    """A value as YAML on one line, to follow a key. Text that a reader could take for another type is quoted."""
    import yaml

    if isinstance(value, list):
        return f"[{', '.join(map(scalar, value))}]"
    quoted = '"' if isinstance(value, str) and not (_WORDS.fullmatch(value) and value.lower() not in _SPECIAL) else None
    text: str = yaml.safe_dump(value, default_flow_style=True, default_style=quoted, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")


def parse(text: str, path: object = "<text>") -> Document:
    """The document in ``text``; ``path`` names it in errors.

    Raises:
        FileError: not YAML, or not within the subset; with line and column.
    """
    document = Document(str(path), text)
    _ = document.data
    return document
