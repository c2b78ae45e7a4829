"""Types of tool arguments: bounded values with a description each, and their JSON Schemas."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, core_schema

Schema = dict[str, Any]

MAX_TEXT, MAX_ITEMS = 500, 50
MAX_WHOLE, MAX_NUMBER = 10**12, 1e18
_UNSHOWN = (
    ("minLength", 1), ("maxLength", MAX_TEXT), ("maxItems", MAX_ITEMS), ("maximum", MAX_WHOLE), ("maximum", MAX_NUMBER),
)  # fmt: skip
"""Default bounds of texts, lists and numbers, which schemas omit: agents read every word."""


class Arguments(BaseModel):
    """Arguments of a tool. Closed and strict: an undeclared argument, or one of another type, is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def given(self, *names: str) -> dict[str, Any]:
        """Arguments among ``names`` that the caller gave, without defaults."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class OneOf:
    """Metadata of a text with a fixed set of values."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(self.words)


def text(about: str = "", *examples: str, longest: int = MAX_TEXT, pattern: str | None = None) -> Any:
    """Metadata of a non-empty text."""
    return Field(min_length=1, max_length=longest, pattern=pattern, **_described(about, examples))


def whole(about: str = "", *examples: int, least: int = 1, most: int = MAX_WHOLE) -> Any:
    """Metadata of a whole number."""
    return Field(ge=least, le=most, **_described(about, examples))


def number(about: str = "", *examples: float, least: float = 0.0, most: float = MAX_NUMBER) -> Any:
    """Metadata of a number."""
    return Field(ge=least, le=most, allow_inf_nan=False, **_described(about, examples))


def several(about: str, *examples: Any) -> Any:
    """Metadata of a list; empty if left out."""
    return Field(default_factory=list, max_length=MAX_ITEMS, **_described(about, examples))


def _described(about: str, examples: Sequence[Any]) -> dict[str, Any]:
    return {"description": about or None, "examples": list(examples) or None}


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def argument_schema(arguments: type[Arguments]) -> Schema:
    """JSON Schema of a tool's arguments, without references, which some clients do not follow."""
    schema = arguments.model_json_schema(schema_generator=_Untitled)
    shown = {"required": [], **inlined(schema, schema.pop("$defs", {}), _is_shown)}
    shown.pop("description", None)  # of the class, for its readers
    return shown


def _is_shown(name: str, value: Any) -> bool:
    return (name, value) not in _UNSHOWN and not (name == "title" and isinstance(value, str)) and (name != "default" or bool(value))


def inlined(schema: Any, definitions: Schema, is_shown: Callable[[str, Any], bool] = lambda _name, _value: True) -> Any:
    """A schema with each reference replaced by its definition, and without keywords that are not shown. A default beside a
    reference is left out.
    """
    if isinstance(schema, list):
        return [inlined(item, definitions, is_shown) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
        del schema["$ref"]
        schema.pop("default", None)
    return {
        name: value if name in ("default", "examples", "enum") else inlined(value, definitions, is_shown)
        for name, value in schema.items()
        if is_shown(name, value)
    }
