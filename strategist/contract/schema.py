"""JSON Schemas of contract documents, with additionalProperties: false."""

import dataclasses
import types
import typing
from enum import Enum
from typing import Any

from strategist.contract.codec import VERSION, is_standalone

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_PLAIN: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    types.NoneType: "null",
}

_ANY: Schema = {"anyOf": [{"type": name} for name in ("object", "array", *_PLAIN.values())]}
"""Schema of any JSON value, with all types listed, because some readers reject an empty schema."""


def document_schema(kind: Any, name: str) -> Schema:
    """JSON Schema of the documents called ``name``; nested types are under ``$defs``, and ``$id`` contains the version.

    A document of one value also carries the version itself; a document of many values (a tuple or a mapping) does not.
    """
    found: dict[str, Schema] = {}
    about = {"$schema": DIALECT, "$id": f"urn:strategist:schema:{name}:{VERSION}"}
    if dataclasses.is_dataclass(kind):
        cls = typing.cast(type, kind)
        schema = _of_dataclass(cls, found)
        about |= {"title": cls.__name__, "description": _description(cls)}
        schema = schema if is_standalone(cls) else _with_head(cls, schema)
    else:
        schema = {"title": name, **type_schema(kind, found)}
    return {**about, **schema, **({"$defs": dict(sorted(found.items()))} if found else {})}


def _with_head(cls: type, schema: Schema) -> Schema:
    head = {"version": {"const": VERSION}, "type": {"const": cls.__name__}}
    return schema | {"properties": head | schema["properties"], "required": [*head, *schema["required"]]}


def type_schema(kind: Any, found: dict[str, Schema]) -> Schema:
    """JSON Schema of values of one type, as the codec encodes them. Adds dataclasses to ``found`` by name, for ``$defs``."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _reference(typing.cast(type, kind), found)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [type_schema(argument, found) for argument in inside]}
    if origin is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return {"type": "array", "items": type_schema(inside[0], found)}
    if origin is tuple:
        return {
            "type": "array",
            "prefixItems": [type_schema(argument, found) for argument in inside],
            "minItems": len(inside),
            "maxItems": len(inside),  # no "items": false, because some clients of tools do not support it
        }
    if origin is dict:
        return {"type": "object", "additionalProperties": type_schema(inside[1], found)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    return _ANY if kind is Any else {"type": _PLAIN[kind]}


def _reference(cls: type, found: dict[str, Schema]) -> Schema:
    if cls.__name__ not in found:
        found[cls.__name__] = {}  # placeholder, because the type may contain itself
        found[cls.__name__] = {"description": _description(cls), **_of_dataclass(cls, found)}
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _of_dataclass(cls: type, found: dict[str, Schema]) -> Schema:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    schema: Schema = {
        "type": "object",
        "properties": {field.name: type_schema(hints[field.name], found) for field in fields},
        "required": [field.name for field in fields if not field.metadata.get("added")],
        "additionalProperties": False,
    }
    return _with_head(cls, schema) if is_standalone(cls) else schema


def _description(cls: type) -> str:
    """Docstring of a class on one line."""
    return " ".join((cls.__doc__ or "").split())
