"""Reader of decision flows."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from strategist.cards.card import Text
from strategist.cards.field_reader import (
    BARE_NUMBER,
    CLASH,
    CONTROL,
    DUPLICATE,
    FIELD,
    FORM,
    NAME,
    SETTING,
    SYNTAX,
    UNIT,
    Inspected,
    KeyPath,
    Reading,
    UnknownWord,
    valid,
)
from strategist.cards.flow import FLOW_FIELDS, FLOW_ROOT, RULE_FIELDS, STEP_FIELDS, Flow, Step
from strategist.expr.vocabulary import SETTINGS, near_miss, setting
from strategist.files.yaml_file import Document

FLOW_FORM, FLOW_CONDITION, FLOW_SETTING, FLOW_TWICE = (f"FLOW{number:03}" for number in range(1, 5))
"""Codes of errors in the form of a flow file; all other codes belong to ``strategist.lint``."""

_CODES = {
    FORM: FLOW_FORM, SYNTAX: FLOW_CONDITION, NAME: FLOW_CONDITION, CLASH: FLOW_CONDITION, SETTING: FLOW_SETTING,
    CONTROL: FLOW_SETTING, DUPLICATE: FLOW_TWICE, FIELD: FLOW_FORM, UNIT: FLOW_CONDITION, BARE_NUMBER: FLOW_CONDITION,
}  # fmt: skip


def read_flow(document: Document) -> Flow:
    """The flow in a document.

    Raises:
        FileError: the document is not a valid flow; points at the first error.
    """
    return valid(document, inspect_flow(document))


def inspect_flow(document: Document) -> Inspected[Flow]:
    """The flow in a document, without its invalid parts, and all errors in its form, from top to bottom."""
    return _FlowReading(document).inspected({1: _read})


class _FlowReading(Reading):
    """Reading whose findings have the codes of flows."""

    codes = _CODES


def _read(reading: Reading) -> Flow | None:
    root = reading.fields(reading.document.data, (), ("protocol", FLOW_ROOT), (FLOW_ROOT,))
    if FLOW_ROOT not in root:
        return None
    key_path: KeyPath = (FLOW_ROOT,)
    fields = reading.fields(root[FLOW_ROOT], key_path, FLOW_FIELDS, ("steps",))
    return Flow(
        id=reading.string(fields.get("id"), (*key_path, "id")) or PurePath(reading.document.path).stem,
        title=reading.text(fields.get("title"), (*key_path, "title")),
        intent=reading.text(fields.get("intent"), (*key_path, "intent")),
        steps=tuple(_steps(reading, fields.get("steps"), (*key_path, "steps"))),
        document=reading.document,
    )


def _steps(reading: Reading, data: Any, key_path: KeyPath) -> Iterator[Step]:
    """Steps of the flow; a step id or a setting that appears twice is reported."""
    ids: set[str] = set()
    decided: dict[str, str] = {}
    for item, item_path in reading.items(data, key_path):
        step = _step(reading, item, item_path, decided)
        if step.id in ids:
            reading.report(DUPLICATE, f"step id {step.id} appears twice", (*item_path, "id"))
        ids.add(step.id)
        yield step


def _step(reading: Reading, data: Any, key_path: KeyPath, decided: dict[str, str]) -> Step:
    fields = reading.fields(data, key_path, STEP_FIELDS, ("id", "decides"))
    name = reading.string(fields.get("id"), (*key_path, "id"))
    rule, cards = _rule(reading, fields.get("rule"), (*key_path, "rule"))
    return Step(
        id=name,
        title=reading.text(fields.get("title"), (*key_path, "title")),
        decides=tuple(_decided_settings(reading, fields.get("decides"), (*key_path, "decides"), name, decided)),
        when=reading.expression(fields.get("when"), (*key_path, "when")),
        rule=rule,
        cards=cards,
        because=reading.text(fields.get("because"), (*key_path, "because")),
    )


def _decided_settings(reading: Reading, data: Any, key_path: KeyPath, step: str, decided: dict[str, str]) -> Iterator[str]:
    for item, item_path in reading.items(data, key_path):
        key = reading.string(item, item_path)
        name = setting(key)
        if name is None:
            known = [*SETTINGS, *(full.partition(".")[2] for full in SETTINGS)]
            if key:
                reading.report(
                    SETTING, f"{key} is not a setting{near_miss(key, known)}", item_path, unknown_word=UnknownWord(key, known)
                )
        elif name.name in decided:
            reading.report(DUPLICATE, f"{key} is decided by step {decided[name.name]} already", item_path)
        else:
            decided[name.name] = step
            yield name.name


def _rule(reading: Reading, data: Any, key_path: KeyPath) -> tuple[Text, tuple[str, ...]]:
    """Text of a rule and ids of its cards; a rule is a text or ``{text: ..., cards: [ids]}``."""
    if data is None or isinstance(data, str):
        return reading.text(data, key_path), ()
    fields = reading.fields(data, key_path, RULE_FIELDS)
    cards = reading.items(fields.get("cards"), (*key_path, "cards"))
    return reading.text(fields.get("text"), (*key_path, "text")), tuple(
        reading.string(item, item_path) for item, item_path in cards
    )
