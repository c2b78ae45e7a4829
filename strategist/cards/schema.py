"""The form of a card as JSON Schema (Draft 2020-12), for editors and other tools; generated from the same tables as the reader.

Expressions are strings here: their names, types and units are checked by the reader.
"""

from collections.abc import Mapping
from typing import Any

from strategist.cards.card import EffectKind, Phase, Status
from strategist.cards.reader import CHANGES, FIELDS, LINES, MAX_RANKS, ROOT
from strategist.expr.vocabulary import CANDIDATE, INT, SETTINGS, VOCABULARY, Name

Schema = dict[str, Any]

_STRING: Schema = {"type": "string", "minLength": 1}
_TEXT: Schema = {"$ref": "#/$defs/text"}
_EXPRESSION: Schema = {"$ref": "#/$defs/expression"}
_SETTINGS: Schema = {"$ref": "#/$defs/settings"}


def card_schema() -> Schema:
    """The schema of a card file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": ROOT,
        "type": "object",
        "properties": {ROOT: _object(_card_fields(), ("module", "intent"))},
        "required": [ROOT],
        "additionalProperties": False,
        "$defs": _definitions(),
    }


def _card_fields() -> Mapping[str, Schema]:
    ranks = {"type": "integer", "minimum": 1, "maximum": MAX_RANKS}
    lists = {
        "preconditions": _entry({"when": _EXPRESSION, "text": _TEXT}),
        "control_points": _entry(_control_point(), ("name",)),
        "observables": _entry({"name": _STRING, "metric": {"enum": list(VOCABULARY)}}, ("name",)),
        "policies": _entry(_policy(), ("id",)),
        "risks": _entry({"id": _STRING, "when": _EXPRESSION, "text": _TEXT, "fallback": _SETTINGS}, ("text",)),
        "interactions": _entry({"card": _STRING, "text": _TEXT}, ("card",)),
        "evidence": _entry({"text": _TEXT, "source": _STRING}, ("text",)),
        "source_refs": {"anyOf": [_STRING, _source_ref()]},
        "example": _entry({"run": _STRING, "ranks": ranks, "refused": _STRING}, ("run",)),
        "cases": _object(_case(), ("given", "expect")),
        "validated_on": _STRING,
    }
    plain = {"id": _STRING, "since": _STRING, "module": _STRING, "title": _TEXT, "intent": _TEXT, "status": {"enum": list(Status)}}
    arrays = {name: {"type": "array", "items": items} for name, items in lists.items()}
    return {name: {**plain, **arrays}[name] for name in FIELDS}


def _control_point() -> Mapping[str, Schema]:
    values = {"anyOf": [_value(None), {"type": "array", "items": _value(None)}]}
    return {
        "name": _STRING,
        "path": {"enum": list(SETTINGS)},
        "values": values,
        "changes": {"enum": list(CHANGES)},
        "effect": _TEXT,
    }


def _policy() -> Mapping[str, Schema]:
    candidate = {"anyOf": [_SETTINGS, {"const": "candidate"}]}
    return {
        "id": _STRING,
        "phase": {"enum": list(Phase)},
        "when": _EXPRESSION,
        "because": _TEXT,
        EffectKind.REQUIRE: _SETTINGS,
        EffectKind.FORBID: candidate,
        EffectKind.SET: _SETTINGS,
        EffectKind.PREFER: candidate,
        EffectKind.TRY: {"$ref": "#/$defs/changes"},
        EffectKind.WARN: {"const": True},
    }


def _source_ref() -> Schema:
    lines = {"type": "string", "pattern": f"^{LINES}$"}
    fields = {"symbol": _STRING, "parameter": _STRING, "lines": lines, "url": _STRING, "note": _TEXT}
    return {**_object(fields), "dependentRequired": {"lines": ["symbol"]}}


def _case() -> Mapping[str, Schema]:
    verdict = {"enum": ["forbidden", "allowed"]}
    spoken = _object({"reasons": {"type": "array", "items": _STRING}, "proposes": {"type": "object"}})
    facts = {name: True for name, entry in VOCABULARY.items() if entry.phase != CANDIDATE}
    candidate = {key: True for name in VOCABULARY if name not in facts for key in (name, name.partition(".")[2])}
    return {"given": _object({"facts": _object(facts), "candidate": _object(candidate)}), "expect": {"anyOf": [verdict, spoken]}}


def _definitions() -> Mapping[str, Schema]:
    return {
        "text": {"anyOf": [_STRING, _object({"en": _STRING, "zh": _STRING})]},
        "expression": {"type": "string", "minLength": 1, "maxLength": 500},
        "settings": _settings(changes=False),
        "changes": _settings(changes=True),
    }


def _settings(*, changes: bool) -> Schema:
    values = {}
    for name, entry in SETTINGS.items():
        forms = [_value(entry), {"type": "array", "items": _value(entry), "minItems": 1}]
        if changes and entry.kind == INT:
            forms.append(_EXPRESSION)
        values[name] = values[name.partition(".")[2]] = {"anyOf": forms}
    return {**_object(values), "minProperties": 1}


def _value(entry: Name | None) -> Schema:
    if entry is None:
        return {"type": ["boolean", "integer", "string"]}
    return {"type": "integer", "minimum": 1} if entry.kind == INT else {"enum": list(entry.choices)}


def _entry(properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """An entry in free text, or one that a machine can act on."""
    return {"anyOf": [_STRING, _object(properties, required)]}


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}
