"""YAML parser of ``yaml_file``: text within the supported subset to plain data, with the parser event of every value."""

import re
from typing import Any, NamedTuple, NoReturn, cast

import yaml

from strategist.errors import FileError

MAX_DEPTH, MAX_NODES = 32, 20_000
MAX_SHOWN_CHARACTERS = 60

_PARSER: Any = getattr(yaml, "CLoader", yaml.Loader)  # used for its events only: it constructs no objects
_CONSTANTS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_AMBIGUOUS = re.compile(  # leading zeros, other bases, sexagesimal, underscores, infinity and NaN
    r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|[-+]?0[oObBxX][-+0-9a-fA-F_]+|[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?"
    r"|[-+]?[0-9][0-9_]*_[0-9_.]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_BREAK = re.compile("\r\n|\r|\n")
_NOT_PORTABLE = re.compile("[\x85\u2028\u2029\ufeff]")
"""Line breaks of YAML 1.1, and the byte-order mark."""
_MISSING_SPACE = re.compile(r"^[^#\n]*(?:[^\s#]#|:\t)", re.MULTILINE)
"""Text between two values with a comment directly after a value, or a tab directly after a colon."""
_BLOCK_COMMENT = re.compile("[|>][-+0-9]*#")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Node(NamedTuple):
    """Parser event of a value, event of its key (None without one), and the nodes inside it by key or index."""

    event: Any
    key: Any
    children: Any

    @property
    def position(self) -> tuple[int, int]:
        """Line and column of the value, from 1."""
        return _position(self.event)

    @property
    def key_position(self) -> tuple[int, int]:
        """Line and column of the key; of the value if there is no key."""
        return _position(self.key or self.event)


def read(text: str, path: object, max_bytes: int) -> tuple[Any, Node]:
    """Plain data in ``text``, and the node of its root; ``path`` names it in errors.

    Raises:
        FileError: not YAML, or not within the subset; with line and column.
    """
    if len(text) > max_bytes or len(text.encode("utf-8", "replace")) > max_bytes:
        raise FileError(path, f"is larger than {max_bytes // 1024} KiB; name another file")
    if match := _NOT_PORTABLE.search(text):
        raise FileError(
            path, f"{match.group()!a} is not the same to every reader: remove it", *_line_and_column(text, match.start())
        )
    reader = _Reader(path, text)
    try:
        parser = _PARSER(text)
        reader.parsed_event = parser.get_event
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = cast(Any, error.problem_mark or error.context_mark)
        where = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise FileError(path, f"is not YAML: {error.problem or error.context}; correct it", *where) from None
    except yaml.reader.ReaderError as error:
        where = _line_and_column(text, len(text.encode("utf-8", "replace")[: error.position].decode("utf-8", "ignore")))
        raise FileError(path, f"is not YAML: {error.reason}; remove it", *where) from None
    except yaml.YAMLError as error:
        raise FileError(path, f"is not YAML: {error}; correct it") from None
    except UnicodeEncodeError:
        raise FileError(path, "is not UTF-8 text; name another file") from None


class _Reader:
    """Builds data and nodes in one pass over the parser events, and enforces the limits on nodes and depth."""

    parsed_event: Any
    end_event: Any
    """End event of the last mapping or sequence."""

    def __init__(self, path: object, text: str) -> None:
        self.path, self.text, self.nodes = path, text, 0
        self.lines = _BREAK.split(text)
        self.end_index = 0
        """Index of the first character after the last event."""

    def document(self) -> tuple[Any, Node]:
        self.next_event()
        start = self.next_event()
        if isinstance(start, yaml.StreamEndEvent):
            return None, Node(start, None, None)
        data, node = self.value(self.next_event(), None, 0, -1)
        self.next_event()
        end = self.next_event()
        if not isinstance(end, yaml.StreamEndEvent):
            self.reject(end, "a second document begins: one file holds one; remove it")
        return data, node

    def next_event(self) -> Any:
        event = self.parsed_event()
        between = self.text[max(0, self.end_index - 1) : event.start_mark.index]
        if ("#" in between or "\t" in between) and _MISSING_SPACE.search(between):
            self.reject(event, "a space is needed before a comment, and after a colon: add it")
        if between.endswith("?"):
            self.reject(event, "a question mark before a key: leave it out, or quote the key")
        self.end_index = event.end_mark.index
        return event

    def value(self, event: Any, key: Any, depth: int, indent: int) -> tuple[Any, Node]:
        """The value that begins with ``event``. ``indent`` is the column of the enclosing collection; -1 at the root."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.reject(event, f"more than {MAX_NODES} values; write fewer")
        if depth > MAX_DEPTH:
            self.reject(event, f"nested deeper than {MAX_DEPTH} levels; write it flatter")
        if event.anchor is not None:
            self.reject(event, f"{event.anchor}: anchors and aliases are not allowed, write the value out")
        if event.tag is not None:
            self.reject(event, f"tag {event.tag[:MAX_SHOWN_CHARACTERS]}: tags are not allowed, remove it")
        kind = type(event)
        start, end = event.start_mark, event.end_mark
        min_column = indent + (kind is not yaml.SequenceStartEvent or bool(event.flow_style))
        if key is not None and start.line > key.end_mark.line and start.column < min_column and start.index < end.index:
            self.reject(event, "is not indented further than its key: move it to the right")
        if kind is yaml.ScalarEvent:
            if event.style in ("'", '"'):
                self.check_lines(event, event, indent)
            return self.scalar(event), Node(event, key, None)
        inner = indent if event.flow_style else event.start_mark.column
        found = (self.mapping if kind is yaml.MappingStartEvent else self.sequence)(event, key, depth, inner)
        if event.flow_style:
            self.check_lines(event, self.end_event, indent)
        return found

    def check_lines(self, start: Any, end: Any, indent: int) -> None:
        """Refuses lines of a bracket or quote that are not indented more than the enclosing value; a closing bracket may be
        level.
        """
        for line in self.lines[start.start_mark.line + 1 : end.end_mark.line + 1]:
            inner = line.lstrip(" ")
            if inner and len(line) - len(inner) + (inner[0] in "]}") <= indent:
                self.reject(start, "its lines are not indented: move them to the right of their key")

    def mapping(self, start: Any, key: Any, depth: int, indent: int) -> tuple[dict[str, Any], Node]:
        data: dict[str, Any] = {}
        children: dict[str, Node] = {}
        while type(event := self.next_event()) is not yaml.MappingEndEvent:
            name, _ = self.value(event, None, depth + 1, indent)
            if not isinstance(name, str):
                self.reject(event, "a key is text: quote it" if isinstance(event, yaml.ScalarEvent) else "a key is text: write one")
            if name == "<<" and not event.style:
                self.reject(event, "merge key <<: write the values out")
            if name in data:
                self.reject(event, f"key {name!r} appears twice: remove one")
            data[name], children[name] = self.value(self.next_event(), event, depth + 1, indent)
        self.end_event = event
        return data, Node(start, key, children)

    def sequence(self, start: Any, key: Any, depth: int, indent: int) -> tuple[list[Any], Node]:
        data: list[Any] = []
        children: list[Node] = []
        while type(event := self.next_event()) is not yaml.SequenceEndEvent:
            item, node = self.value(event, None, depth + 1, indent)
            data.append(item)
            children.append(node)
        self.end_event = event
        return data, Node(start, key, children)

    def scalar(self, event: Any) -> Any:
        """Value of a scalar by the YAML 1.2 core schema; quoted and block scalars are text."""
        text: str = event.value
        if _UNPRINTABLE.search(text):
            self.reject(event, "a character that cannot be shown: remove it")
        if event.style:
            if event.style in "|>":
                self.check_block(event)
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text != text.strip() or text.endswith((" -", "\t-")) or text == "-":
            self.reject(event, f"{text[:40]!r} is not text to every reader: quote it")
        if text[0] not in "+-.0123456789":
            return text
        if _AMBIGUOUS.fullmatch(text):
            self.reject(event, f"{text[:40]} reads as different numbers in YAML 1.1 and 1.2: quote it, or write it plainly")
        if _INT.fullmatch(text):
            if len(text.lstrip("+-")) > 18:
                self.reject(event, "a whole number beyond 18 digits: quote it, or write it as 1e18")
            return int(text)
        if not _FLOAT.fullmatch(text):
            return text
        number = float(text) if len(text) <= 40 else float("inf")
        if number in (float("inf"), float("-inf")):
            self.reject(event, f"{text[:40]} is beyond the range of numbers: quote it if it is text")
        return number

    def check_block(self, event: Any) -> None:
        if not event.value.strip("\n"):
            self.reject(event, "a block of text without text: write it, or ''")
        if _BLOCK_COMMENT.match(self.text, event.start_mark.index):
            self.reject(event, "a space is needed before a comment: add it")

    def reject(self, event: Any, message: str) -> NoReturn:
        raise FileError(self.path, message, *_position(event))


def _line_and_column(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _position(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1
