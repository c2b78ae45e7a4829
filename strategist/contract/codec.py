"""Contract values as versioned JSON and back. Unknown keys, missing keys and wrong types are errors with a position."""

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from strategist.contract import json_document
from strategist.errors import FileError, StrategistError
from strategist.files import outputs

VERSION = 1
MOST = 1e30
"""The largest number that a document may hold."""
T = TypeVar("T")


def added(default: T) -> T:
    """Default of a field that was added after the first release of its class.

    The default is not written, so that equal values keep their bytes, and plans their ids.
    """
    return dataclasses.field(default=default, metadata={"added": True})


# The class attribute ``RETIRED`` lists removed fields of a class. Older documents may still have them: they are ignored.
_SHARED: dict[type, WeakValueDictionary[str, Any]] = {}


def shared(cls: type[T]) -> type[T]:
    """Class decorator that interns decoded values: equal data decode to one object while it is referenced.

    For classes of which a study holds thousands of equal values.
    """
    _SHARED[cls] = WeakValueDictionary()
    return cls


_STANDALONE: set[type] = set()


def standalone(cls: type[T]) -> type[T]:
    """Class decorator for values that carry version and type also inside other documents, so that they can be cut out and saved."""
    _STANDALONE.add(cls)
    return cls


def is_standalone(cls: type) -> bool:
    """Whether values of a class carry version and type inside other documents."""
    return cls in _STANDALONE


class CodecError(StrategistError):
    """A JSON value that does not match the contract, at ``field_path`` in the document, such as ``Plan.model.layers``."""

    def __init__(self, message: str, field_path: str = "", key: str = "") -> None:
        super().__init__(f"{field_path}: {message}" if field_path else message)
        self.field_path = f"{field_path}.{key}" if key else field_path


def encode(value: Any) -> Any:
    """A contract value as plain JSON data, fields in the order of their definition."""
    if value is None or type(value) in (bool, int, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = ((name, getattr(value, name), usual) for name, usual in _fields_with_omitted_value(type(value)))
        return _head(type(value)) | {name: encode(item) for name, item, usual in named if item != usual}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CodecError(f"{value} is not a finite number and cannot be written as JSON; leave it out")
        return value
    if isinstance(value, int | str):
        return value
    raise TypeError(f"{type(value).__name__} is not a contract value")


def _head(cls: type) -> dict[str, Any]:
    return {"version": VERSION, "type": cls.__name__} if is_standalone(cls) else {}


_ALWAYS = object()
"""Sentinel that equals no value: the field is always written."""


@cache
def _fields_with_omitted_value(cls: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a class, each with the value that is left out."""
    return tuple((field.name, field.default if field.metadata.get("added") else _ALWAYS) for field in dataclasses.fields(cls))


def dumps(value: Any) -> str:
    """The value as one JSON document with version and type name; equal values give equal bytes."""
    return json.dumps(_document(value), indent=2, ensure_ascii=False) + "\n"


def one_line(value: Any) -> str:
    """The document as one line of ASCII without the line break, for JSON lines."""
    return json.dumps(_document(value))


def _document(value: Any) -> dict[str, Any]:
    return {"version": VERSION, "type": type(value).__name__, **encode(value)}


def loads(cls: type[T], text: str) -> T:
    """The value of type ``cls`` in ``text``.

    Raises:
        DocumentError: not JSON.
        CodecError: a newer version, another type, an unknown or missing key, or a value of the wrong type.
        InputError: a value violates a constraint of its type.
    """
    data = json_document.read(text)
    if not isinstance(data, dict):
        raise CodecError(f"a {cls.__name__} is a JSON object, not {type(data).__name__}; {_another(cls)}")
    _check_head(cls, data)
    return typing.cast(T, decode(cls, data, cls.__name__))


def _check_head(cls: type, data: dict[str, Any]) -> None:
    """Checks version and type of a document, and removes both from ``data``."""
    version, name = data.pop("version", None), data.pop("type", None)
    if type(version) is not int or version < 1:
        raise CodecError(f"version is missing: this is not a file of strategist; {_another(cls)}")
    if version > VERSION:
        raise CodecError(f"version {version} is newer than {VERSION}, the newest that this strategist reads: upgrade it")
    if name != cls.__name__:
        held = json_document.shown(name) if name else "nothing that has a name"
        raise CodecError(f"this holds {held}, and a {cls.__name__} is needed; {_another(cls)}")


WRITING_COMMANDS = {
    "Plan": "strategist plan --model MODEL --gpus GPUS -o plan.json",
    "Measurement": "strategist run plan.json",
}
"""Command that writes each type of document; error messages suggest it."""


def _another(cls: type) -> str:
    command = WRITING_COMMANDS.get(cls.__name__)
    return f"name another file, or write one with {command}" if command else "name another file"


def load(cls: type[T], path: str | Path, *, any_size: bool = False) -> T:
    """The value of type ``cls`` in a file. ``any_size`` skips the size limit, for files that this program wrote.

    Raises:
        FileError: the file cannot be read, or holds something else; with line and column.
    """
    try:
        text = json_document.load(path, any_size=any_size)
    except FileError as error:
        raise FileError(path, error.message.replace(_another(object), _another(cls))) from None
    return parse(cls, text, path)


def parse(cls: type[T], text: str, path: str | Path) -> T:
    """The value of type ``cls`` in ``text``; errors name the file at ``path``.

    Raises:
        FileError: the text holds something else; with line and column.
    """
    try:
        return loads(cls, text)
    except json_document.NoJsonError as error:
        raise FileError(path, str(error).replace("correct it", f"correct it, {_another(cls)}"), error.line, error.column) from None
    except json_document.DocumentError as error:
        raise FileError(path, str(error), error.line, error.column) from None
    except StrategistError as error:
        raise FileError(path, str(error), *json_document.position(text, error.field_path or cls.__name__, cls.__name__)) from None


def save(value: Any, path: str | Path, *, force: bool = True) -> None:
    """Writes the document atomically. Without ``force``, an existing file is replaced only if it holds a document of the same type.

    Raises:
        FileError: the path cannot be written, or holds another file.
    """
    outputs.write(path, dumps(value), marker=document_header(type(value)), force=force)


def document_header(cls: type) -> str:
    """Text at the head of every document of a type."""
    return f'"type": "{cls.__name__}"'


def decode(kind: Any, data: Any, field_path: str) -> Any:
    """``data`` as a value of the annotated type ``kind``; ``field_path`` names it in errors."""
    if type(data) in (int, float) and not -MOST <= data <= MOST:
        raise CodecError(f"beyond {MOST:.0e}; write a number", field_path)
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_shared(typing.cast(type, kind), data, field_path)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data, field_path)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data, field_path)
    if origin is dict:
        if not isinstance(data, dict):
            raise CodecError(f"an object is needed, not {_name(data)}; correct it", field_path)
        value_kind = typing.get_args(kind)[1]
        return {key: decode(value_kind, item, f"{field_path}.{key}") for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        if data not in [member.value for member in kind]:
            known = ", ".join(str(member.value) for member in kind)
            raise CodecError(f"{json_document.shown(data)} is not one of {known}; choose one", field_path)
        return kind(data)
    return _decode_plain(kind, data, field_path)


def _decode_plain(kind: Any, data: Any, field_path: str) -> Any:
    if kind is float and type(data) is int:
        return float(data)
    if kind is types.NoneType:
        kind = type(None)
    if type(data) is not kind:
        raise CodecError(f"{getattr(kind, '__name__', kind)} is needed, not {_name(data)}; correct it", field_path)
    return data


def _decode_shared(cls: type, data: Any, field_path: str) -> Any:
    if (known := _SHARED.get(cls)) is None:
        return _decode_dataclass(cls, data, field_path)
    text = repr(data)
    value = known.get(text)
    if value is None:
        value = known[text] = _decode_dataclass(cls, data, field_path)
    return value


def _decode_dataclass(cls: type, data: Any, field_path: str) -> Any:
    if not isinstance(data, dict):
        raise CodecError(f"an object is needed, not {_name(data)}; correct it", field_path)
    kinds, needed = _fields(cls)
    if is_standalone(cls) and "type" in data:
        _check_head(cls, data := dict(data))
    if retired := getattr(cls, "RETIRED", ()):
        data = {name: item for name, item in data.items() if name not in retired}
    if unknown := sorted(set(data) - set(kinds)):
        raise CodecError(f"unknown key {json_document.shown(unknown[0])}; known are {', '.join(kinds)}", field_path, unknown[0])
    if missing := sorted(needed - set(data)):
        raise CodecError(f"key {missing[0]!r} is missing; add it", field_path)
    values = {name: decode(kinds[name], item, f"{field_path}.{name}") for name, item in data.items()}
    try:
        return cls(**values)
    except StrategistError as error:
        error.field_path = field_path
        raise


@cache
def _fields(cls: type) -> tuple[dict[str, Any], set[str]]:
    """Annotated types by field name, and the names of fields without a default."""
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    missing = dataclasses.MISSING
    needed = {field.name for field in fields if field.default is missing and field.default_factory is missing}
    return {field.name: hints[field.name] for field in fields}, needed


def _decode_union(kinds: tuple[Any, ...], data: Any, field_path: str) -> Any:
    for kind in kinds:  # exact types first, so that True is not read as int, nor 1 as float
        if type(data) is kind:
            return data
    if data is None and types.NoneType in kinds:
        return None
    complaints: list[CodecError] = []
    for kind in kinds:
        if kind is types.NoneType:
            continue
        try:
            return decode(kind, data, field_path)
        except CodecError as error:
            complaints.append(error)
    raise complaints[0] if complaints else CodecError(f"{_name(data)} is not allowed; leave it out", field_path)


def _decode_tuple(kinds: tuple[Any, ...], data: Any, field_path: str) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise CodecError(f"a list is needed, not {_name(data)}; correct it", field_path)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(decode(kinds[0], item, f"{field_path}[{i}]") for i, item in enumerate(data))
    if len(kinds) != len(data):
        raise CodecError(f"{len(kinds)} items are needed, not {len(data)}; correct it", field_path)
    return tuple(decode(kind, item, f"{field_path}[{i}]") for i, (kind, item) in enumerate(zip(kinds, data, strict=True)))


def _name(data: Any) -> str:
    return (
        f"{type(data).__name__} {json_document.shown(data)}" if isinstance(data, str | int | float | bool) else type(data).__name__
    )
