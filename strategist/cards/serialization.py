"""Cards and flows as plain data, for the cache of the parsed shipped deck.

A value is a list: the number of its kind, then its fields in order, without trailing fields that have their default.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from strategist.cards import card, flow
from strategist.cards.card import Card
from strategist.cards.flow import Flow
from strategist.expr.check import Expression
from strategist.expr.parse import Choice, Literal, Operation, Reference
from strategist.files.yaml_file import Document

_COLLECTIONS: tuple[type, ...] = (tuple, list, frozenset, dict)
_ENUMS: tuple[type[Enum], ...] = (card.Status, card.Phase, card.EffectKind)
_CLASSES: tuple[type, ...] = (
    Expression, Literal, Reference, Choice, Operation,
    card.Text, card.Condition, card.ControlPoint, card.Observable, card.Setting, card.Effect, card.Policy, card.Risk,
    card.SourceRef, card.Example, card.Claim, card.Interaction, card.Case, Card, flow.Step, Flow,
)  # fmt: skip
_KINDS = (*_COLLECTIONS, *_ENUMS, *_CLASSES)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_DOCUMENT = "document"


def serialized(value: Any) -> Any:
    """The value as plain data, without its source document."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    number = _NUMBERS[kind]
    if isinstance(value, Enum):
        return [number, value.value]
    if isinstance(value, dict):
        return [number, *(serialized(part) for pair in value.items() for part in pair)]
    if not is_dataclass(value):
        return [number, *map(serialized, sorted(value) if kind is frozenset else value)]
    parts = [(item, getattr(value, item.name)) for item in fields(value) if item.name != _DOCUMENT]
    while parts and parts[-1][0].default is not MISSING and parts[-1][0].default == parts[-1][1]:
        parts.pop()
    return [number, *(serialized(part) for _, part in parts)]


def deserialized(data: Any, canonical: str, document: Document) -> Card | Flow:
    """Card or flow from stored data, with its source document and, for a card, its canonical content."""
    item: Card | Flow = _DESERIALIZERS[data[0]](data)
    item.__dict__[_DOCUMENT] = document
    if isinstance(item, Card):
        item.__dict__["canonical"] = canonical
    return item


def _parts(data: list[Any]) -> list[Any]:
    return [_DESERIALIZERS[part[0]](part) if type(part) is list else part for part in data[1:]]


def _deserializer(kind: type) -> Callable[[list[Any]], Any]:
    """Constructor of values of a kind. It skips validation, because the values were validated when they were read."""
    if kind is dict:
        return lambda data: dict(zip((parts := _parts(data))[::2], parts[1::2], strict=True))
    if kind in _COLLECTIONS:
        return lambda data: kind(_parts(data))
    if kind in _ENUMS:
        return lambda data: kind(data[1])
    field_defaults = {item.name: item.default for item in fields(kind) if item.name != _DOCUMENT}
    return _instance(
        kind, tuple(field_defaults), {name: default for name, default in field_defaults.items() if default is not MISSING}
    )


def _instance(kind: type, names: tuple[str, ...], defaults: Mapping[str, Any]) -> Callable[[list[Any]], Any]:
    def deserialize(data: list[Any]) -> Any:
        value: Any = object.__new__(kind)
        value.__dict__.update(defaults)
        value.__dict__.update(zip(names, _parts(data), strict=False))
        return value

    return deserialize


_DESERIALIZERS = tuple(map(_deserializer, _KINDS))
