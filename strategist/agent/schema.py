"""Schemas of arguments: closed, each argument with a line that says what it is, and an example."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

MOST_TEXT, MOST_ITEMS = 500, 50


def arguments(properties: Mapping[str, Schema], required: Sequence[str] = (), **rest: Any) -> Schema:
    """An object of these arguments and no others."""
    return {
        "type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False, **rest,
    }  # fmt: skip


def text(about: str, *examples: str, longest: int = MOST_TEXT) -> Schema:
    """A text that is not empty."""
    return _said(about, {"type": "string", "minLength": 1, "maxLength": longest}, examples)


def word(about: str, choices: Sequence[str]) -> Schema:
    """One of some words."""
    return _said(about, {"type": "string", "enum": list(choices)})


def whole(about: str, *examples: int, least: int = 1, most: int = 10**12) -> Schema:
    """A whole number."""
    return _said(about, {"type": "integer", "minimum": least, "maximum": most}, examples)


def number(about: str, *examples: float, least: float = 0.0, most: float = 1e18) -> Schema:
    """A number."""
    return _said(about, {"type": "number", "minimum": least, "maximum": most}, examples)


def several(about: str, item: Schema, *examples: Any) -> Schema:
    """A list without repetitions."""
    return _said(about, {"type": "array", "items": item, "maxItems": MOST_ITEMS, "uniqueItems": True}, examples)


def _said(about: str, schema: Schema, examples: Sequence[Any] = ()) -> Schema:
    """With what there is to be said of it: every word is read by every agent."""
    said = {"description": about} if about else {}
    return {**said, **schema, **({"examples": list(examples)} if examples else {})}
