"""Values of the contract as versioned JSON and back. Unknown keys, missing keys and wrong types are refused, with their place."""

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from strategist.errors import FileError, StrategistError

VERSION = 1
T = TypeVar("T")


def added(default: T) -> T:
    """The default of a field that a type got after values of it had been written: it is left out while nothing else is said, so
    that equal values keep their bytes and plans their ids."""
    return dataclasses.field(default=default, metadata={"added": True})


class CodecError(StrategistError):
    """A JSON value is not what the contract says; names the place inside the document."""


def encode(value: Any) -> Any:
    """A contract value as plain JSON data, fields in the order of their definition."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: encode(item) for field, item in named if not (field.metadata.get("added") and item == field.default)}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CodecError(f"{value} is not a finite number and cannot be written as JSON")
        return value
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{type(value).__name__} is no contract value")


def dumps(value: Any) -> str:
    """One JSON document, equal values to equal bytes; carries the version and the type's name."""
    return json.dumps(_document(value), indent=2, ensure_ascii=False) + "\n"


def one_line(value: Any) -> str:
    """The document on one line of ASCII, without its end, for a stream of documents."""
    return json.dumps(_document(value))


def _document(value: Any) -> dict[str, Any]:
    return {"version": VERSION, "type": type(value).__name__, **encode(value)}


def loads(cls: type[T], text: str) -> T:
    """The value of type ``cls`` in ``text``.

    Raises:
        CodecError: not JSON, a newer version, another type, an unknown or missing key, or a value of the wrong type.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no JSONDecodeError
        raise CodecError(f"not a JSON document: {error}") from None
    if not isinstance(data, dict):
        raise CodecError(f"a {cls.__name__} is a JSON object, not {type(data).__name__}")
    version, name = data.pop("version", None), data.pop("type", None)
    if not isinstance(version, int) or version < 1:
        raise CodecError("version is missing: this is no file of strategist's")
    if version > VERSION:
        raise CodecError(f"version {version} is newer than {VERSION}, the newest that this strategist reads: upgrade it")
    if name != cls.__name__:
        raise CodecError(f"this holds {name or 'nothing that has a name'}, and a {cls.__name__} is needed: name another file")
    return typing.cast(T, decode(cls, data, cls.__name__))


def load(cls: type[T], path: str | Path) -> T:
    """The value of type ``cls`` in the file.

    Raises:
        FileError: the file cannot be read, or holds something else; names the place inside it.
    """
    try:
        return loads(cls, Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text") from None
    except StrategistError as error:
        raise FileError(path, str(error)) from None


def save(value: Any, path: str | Path) -> None:
    """Writes the document whole or not at all.

    Raises:
        FileError: the place cannot be written.
    """
    target = Path(path)
    draft = target.with_name(target.name + ".draft")
    try:
        draft.write_text(dumps(value), encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None


def decode(kind: Any, data: Any, place: str) -> Any:
    """``data`` as a value of the annotated type ``kind``; ``place`` names it in errors."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type, kind), data, place)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data, place)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data, place)
    if origin is dict:
        if not isinstance(data, dict):
            raise CodecError(f"{place}: an object is needed, not {_name(data)}")
        value_kind = typing.get_args(kind)[1]
        return {key: decode(value_kind, item, f"{place}.{key}") for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        if data not in [member.value for member in kind]:
            raise CodecError(f"{place}: {data!r} is not one of {', '.join(str(member.value) for member in kind)}")
        return kind(data)
    return _decode_plain(kind, data, place)


def _decode_plain(kind: Any, data: Any, place: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind is types.NoneType:
        kind = type(None)
    if type(data) is not kind:
        raise CodecError(f"{place}: {getattr(kind, '__name__', kind)} is needed, not {_name(data)}")
    return data


def _decode_dataclass(cls: type, data: Any, place: str) -> Any:
    if not isinstance(data, dict):
        raise CodecError(f"{place}: an object is needed, not {_name(data)}")
    kinds, needed = _fields(cls)
    if unknown := sorted(set(data) - set(kinds)):
        raise CodecError(f"{place}: unknown key {unknown[0]!r}; known are {', '.join(kinds)}")
    if missing := sorted(needed - set(data)):
        raise CodecError(f"{place}: key {missing[0]!r} is missing")
    return cls(**{name: decode(kinds[name], item, f"{place}.{name}") for name, item in data.items()})


@cache
def _fields(cls: type) -> tuple[dict[str, Any], set[str]]:
    """Field name to annotated type, and the names without a default."""
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    missing = dataclasses.MISSING
    needed = {field.name for field in fields if field.default is missing and field.default_factory is missing}
    return {field.name: hints[field.name] for field in fields}, needed


def _decode_union(kinds: tuple[Any, ...], data: Any, place: str) -> Any:
    for kind in kinds:  # exact types first, so that True is no int and 1 no float
        if type(data) is kind:
            return data
    if data is None and types.NoneType in kinds:
        return None
    complaints = []
    for kind in kinds:
        if kind is types.NoneType:
            continue
        try:
            return decode(kind, data, place)
        except CodecError as error:
            complaints.append(str(error))
    raise CodecError(complaints[0] if complaints else f"{place}: {_name(data)} is not allowed")


def _decode_tuple(kinds: tuple[Any, ...], data: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise CodecError(f"{place}: a list is needed, not {_name(data)}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(decode(kinds[0], item, f"{place}[{i}]") for i, item in enumerate(data))
    if len(kinds) != len(data):
        raise CodecError(f"{place}: {len(kinds)} items are needed, not {len(data)}")
    return tuple(decode(kind, item, f"{place}[{i}]") for i, (kind, item) in enumerate(zip(kinds, data, strict=True)))


def _name(data: Any) -> str:
    return f"{type(data).__name__} {data!r}" if isinstance(data, str | int | float | bool) else type(data).__name__


def _refuse_constant(text: str) -> Any:
    raise CodecError(f"{text} is not a finite number")
