"""JSON Schemas (Draft 2020-12) of card and flow files, for editors and other tools, generated from the readers' tables.

Expressions are strings here; the reader checks their names, types and units.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any

from strategist.cards.card import ROOT, EffectKind, Phase, Status
from strategist.cards.flow import FLOW_FIELDS, FLOW_ROOT, RULE_FIELDS, STEP_FIELDS
from strategist.cards.reader import CHANGES, FIELDS, LINES, MAX_RANKS, OPTIONS, READERS
from strategist.expr.vocabulary import CANDIDATE, CONTROLS, INT, SETTINGS, VOCABULARY, Name, setting

Schema = dict[str, Any]

_DOCS = {
    "protocol": "Version of the card protocol that the file is written in.",
    ROOT: "One piece of engineering knowledge: when it applies, what it does to a plan, why, and where it comes from.",
    "id": "Unique in the deck, such as TP-101; an equal id in a later folder takes the card's place.",
    "title": "What it says, in a few words.",
    "status": "A stable card also has a title, sources, and two cases.",
    "since": "Version of the deck that it came with.",
    "module": "Part of the stack that it is about, such as fsdp2.",
    "intent": "What is traded against what, in one sentence.",
    "validated_on": "Hardware and versions that it was tried on.",
    "preconditions": "The card is skipped unless all of these are true; unknown is not enough.",
    "control_points": "The settings that the card is about.",
    "observables": "What to watch while it is followed.",
    "policies": "What the card does, when, and because of what.",
    "risks": "What can go wrong while it is followed, and what to fall back to.",
    "interactions": "Other cards that bear on this one.",
    "evidence": "Findings for or against it, each with its source.",
    "source_refs": "Where the knowledge comes from: a symbol of torch, an address, or words.",
    "example": "The knowledge as a program for CPU.",
    "cases": "The card's own tests, judged by this card alone.",
    "when": "A condition; what is unknown makes it neither true nor false.",
    "because": "One sentence, shown with the plan.",
    "phase": "plan: before anything runs. observe: after a trial.",
    "changes": "Whether the setting can change the result of training, or its execution only.",
    EffectKind.REQUIRE: "Drops candidates that have another value: laws of the stack.",
    EffectKind.FORBID: "Drops candidates that have all of these values.",
    EffectKind.SET: "A default, which gives way to what the user fixed and where nothing would be left.",
    EffectKind.PREFER: "One point, which breaks near-ties; the cost model decides.",
    EffectKind.TRY: "Proposed as a trial after a measurement.",
    EffectKind.WARN: "Shown with the plan.",
    FLOW_ROOT: "In which order people decide the settings of a plan; it gives explanations their order.",
    "steps": "In order; no setting in two of them.",
    "decides": "Settings that the step decides, bare or in full.",
    "rule": "By what the step decides: words, and cards that it asks.",
}

_STRING: Schema = {"type": "string", "minLength": 1}
_TEXT: Schema = {"$ref": "#/$defs/text"}
_EXPRESSION: Schema = {"$ref": "#/$defs/expression"}
_SETTINGS: Schema = {"$ref": "#/$defs/settings"}
_COMPUTED: Schema = {"$ref": "#/$defs/options"}


def card_schema() -> Schema:
    """The schema of a card file."""
    return _file(ROOT, _object(_card_fields(), ("module", "intent")), _definitions())


def flow_schema() -> Schema:
    """The schema of a flow file."""
    names = {
        "type": "array",
        "items": {"anyOf": [_const_schema(name) for full in SETTINGS for name in (full.partition(".")[2], full)]},
    }
    rule = {"text": _TEXT, "cards": {"type": "array", "items": _STRING}}
    step = {
        "id": _STRING,
        "title": _TEXT,
        "decides": names,
        "when": _EXPRESSION,
        "rule": {"anyOf": [_STRING, _object({name: rule[name] for name in RULE_FIELDS})]},
        "because": _TEXT,
    }
    steps = {"type": "array", "items": _object({name: step[name] for name in STEP_FIELDS}, ("id", "decides"))}
    fields = {"id": _STRING, "title": _TEXT, "intent": _TEXT, "steps": steps}
    return _file(FLOW_ROOT, _object({name: fields[name] for name in FLOW_FIELDS}, ("steps",)), _DEFINITIONS)


SCHEMAS: Mapping[str, Callable[[], Schema]] = {"card": card_schema, "flow": flow_schema}
"""Schema functions by kind of file."""

SCHEMA_FILES = {"card": "strategy-card.schema.json", "flow": "decision-flow.schema.json"}
"""File names of the schemas in the folder ``schema`` of the shipped deck."""


def _file(root: str, schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Schema of a file with the key ``root`` and its protocol."""
    fields = _object({"protocol": {"enum": list(READERS)}, root: schema}, (root,))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": root, **fields, "$defs": dict(definitions)}


def _card_fields() -> Mapping[str, Schema]:
    ranks = {"type": "integer", "minimum": 1, "maximum": MAX_RANKS}
    lists = {
        "preconditions": _entry({"when": _EXPRESSION, "text": _TEXT}),
        "control_points": _entry(_control_point(), ("name",)),
        "observables": _entry({"name": _STRING, "metric": {"anyOf": list(map(_const_schema, VOCABULARY))}}, ("name",)),
        "policies": _entry(_policy(), ("id",)),
        "risks": _entry({"id": _STRING, "when": _EXPRESSION, "text": _TEXT, "fallback": _SETTINGS}, ("text",)),
        "interactions": _entry({"card": _STRING, "text": _TEXT}, ("card",)),
        "evidence": _entry({"text": _TEXT, "source": _STRING}, ("text",)),
        "source_refs": {"anyOf": [_STRING, _source_ref()]},
        "example": _entry({"run": _STRING, "ranks": ranks, "refused": _STRING}, ("run",)),
        "cases": _object(_case(), ("given", "expect")),
        "validated_on": _STRING,
    }
    scalars = {
        "id": _STRING,
        "since": _STRING,
        "module": _STRING,
        "title": _TEXT,
        "intent": _TEXT,
        "status": {"enum": list(Status)},
    }
    arrays = {name: {"type": "array", "items": items} for name, items in lists.items()}
    return {name: {**scalars, **arrays}[name] for name in FIELDS}


def _control_point() -> Mapping[str, Schema]:
    values = {"anyOf": [_value(None), {"type": "array", "items": _value(None)}]}
    return {
        "name": _STRING,
        "path": {"anyOf": list(map(_const_schema, CONTROLS))},
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
        EffectKind.REQUIRE: _COMPUTED,
        EffectKind.FORBID: candidate,
        EffectKind.SET: _COMPUTED,
        EffectKind.PREFER: {"anyOf": [_COMPUTED, {"const": "candidate"}]},
        EffectKind.TRY: {"$ref": "#/$defs/changes"},
        EffectKind.WARN: {"const": True},
    }


def _source_ref() -> Schema:
    lines = {"type": "string", "pattern": f"^{LINES}$"}
    fields = {"symbol": _STRING, "parameter": _STRING, "lines": lines, "url": _STRING, "note": _TEXT}
    return {**_object(fields), "dependentRequired": {"lines": ["symbol"]}}


def _case() -> Mapping[str, Schema]:
    verdict = {"enum": ["forbidden", "allowed"]}
    expectation = _object({"reasons": {"type": "array", "items": _STRING}, "proposes": {"type": "object"}})
    facts = {name: {"description": entry.doc} for name, entry in VOCABULARY.items() if entry.phase != CANDIDATE}
    candidate_names = {name: {"description": VOCABULARY[name].doc} for name in VOCABULARY if name not in facts}
    candidate = {key: doc for name, doc in candidate_names.items() for key in (name, name.partition(".")[2])}
    return {
        "given": _object({"facts": _object(facts), "candidate": _object(candidate)}),
        "expect": {"anyOf": [verdict, expectation]},
    }


_DEFINITIONS: Mapping[str, Schema] = {
    "text": {"anyOf": [_STRING, {"type": "object", "properties": {"en": _STRING, "zh": _STRING}, "additionalProperties": False}]},
    "expression": {"type": "string", "minLength": 1, "maxLength": 500},
}


def _definitions() -> Schema:
    """Definitions that several fields of a card share; each setting with its allowed values."""
    setting_schemas = {name: {"description": entry.doc, "anyOf": _one_or_more(_value(entry))} for name, entry in SETTINGS.items()}
    return {
        **_DEFINITIONS,
        "settings": _settings(),
        "changes": _settings(SETTINGS),
        "options": _settings(OPTIONS),
        **setting_schemas,
    }


def _settings(computed: Container[str] = ()) -> Schema:
    values: dict[str, Schema] = {}
    for name, entry in SETTINGS.items():
        values[name] = {"$ref": f"#/$defs/{name}"}
        if name in computed and entry.kind == INT:
            values[name] = {"anyOf": [values[name], _EXPRESSION]}
        values[name.partition(".")[2]] = values[name]
    return {**_object(values), "minProperties": 1}


def _one_or_more(value: Schema) -> list[Schema]:
    return [value, {"type": "array", "items": value, "minItems": 1}]


def _value(entry: Name | None) -> Schema:
    if entry is None:
        return {"type": ["boolean", "integer", "string"]}
    return {"type": "integer", "minimum": entry.low or 0} if entry.kind == INT else {"enum": list(entry.choices)}


def _entry(properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """Schema of an entry: free text, or a mapping that is evaluated."""
    return {"anyOf": [_STRING, _object(properties, required)]}


def _const_schema(key: str) -> Schema:
    """Schema of one name of the vocabulary, with its description; settings may also be bare."""
    name = setting(key) or VOCABULARY[key]
    return {"const": key, "description": name.doc}


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> Schema:
    """Schema of a mapping with these fields, each with its description."""
    described = {name: {"description": _DOCS[name], **schema} if name in _DOCS else schema for name, schema in properties.items()}
    return {"type": "object", "properties": described, "required": list(required), "additionalProperties": False}
