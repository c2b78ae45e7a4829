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
    Place,
    Reading,
    UnknownWord,
)
from strategist.cards.flow import FLOW_FIELDS, FLOW_ROOT, RULE_FIELDS, STEP_FIELDS, Flow, Step
from strategist.contract.diagnostic import Diagnostic
from strategist.errors import FileError
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
    flow, findings = inspect_flow(document)
    if findings or flow is None:
        first = findings[0]
        raise FileError(document.path, first.message, first.line, first.column)
    return flow


def inspect_flow(document: Document) -> tuple[Flow | None, tuple[Diagnostic, ...]]:
    """The flow in a document, without its invalid parts, and all errors in its form, from top to bottom."""
    reading = _FlowReading(document)
    reader = reading.dispatch({1: _read})
    return (reader(reading) if reader else None), reading.in_order()


class _FlowReading(Reading):
    """Reading whose findings have the codes of flows."""

    codes = _CODES


def _read(reading: Reading) -> Flow | None:
    root = reading.fields(reading.document.data, (), ("protocol", FLOW_ROOT), (FLOW_ROOT,))
    if FLOW_ROOT not in root:
        return None
    place: Place = (FLOW_ROOT,)
    fields = reading.fields(root[FLOW_ROOT], place, FLOW_FIELDS, ("steps",))
    return Flow(
        id=reading.string(fields.get("id"), (*place, "id")) or PurePath(reading.document.path).stem,
        title=reading.text(fields.get("title"), (*place, "title")),
        intent=reading.text(fields.get("intent"), (*place, "intent")),
        steps=tuple(_steps(reading, fields.get("steps"), (*place, "steps"))),
        document=reading.document,
    )


def _steps(reading: Reading, data: Any, place: Place) -> Iterator[Step]:
    """Steps of the flow; a step id or a setting that appears twice is reported."""
    ids: set[str] = set()
    decided: dict[str, str] = {}
    for item, at in reading.items(data, place):
        step = _step(reading, item, at, decided)
        if step.id in ids:
            reading.report(DUPLICATE, f"step id {step.id} appears twice", (*at, "id"))
        ids.add(step.id)
        yield step


def _step(reading: Reading, data: Any, place: Place, decided: dict[str, str]) -> Step:
    fields = reading.fields(data, place, STEP_FIELDS, ("id", "decides"))
    name = reading.string(fields.get("id"), (*place, "id"))
    rule, cards = _rule(reading, fields.get("rule"), (*place, "rule"))
    return Step(
        id=name,
        title=reading.text(fields.get("title"), (*place, "title")),
        decides=tuple(_decides(reading, fields.get("decides"), (*place, "decides"), name, decided)),
        when=reading.expression(fields.get("when"), (*place, "when")),
        rule=rule,
        cards=cards,
        because=reading.text(fields.get("because"), (*place, "because")),
    )


def _decides(reading: Reading, data: Any, place: Place, step: str, decided: dict[str, str]) -> Iterator[str]:
    for item, at in reading.items(data, place):
        key = reading.string(item, at)
        name = setting(key)
        if name is None:
            known = [*SETTINGS, *(full.partition(".")[2] for full in SETTINGS)]
            if key:
                reading.report(SETTING, f"{key} is not a setting{near_miss(key, known)}", at, wrong=UnknownWord(key, known))
        elif name.name in decided:
            reading.report(DUPLICATE, f"{key} is decided by step {decided[name.name]} already", at)
        else:
            decided[name.name] = step
            yield name.name


def _rule(reading: Reading, data: Any, place: Place) -> tuple[Text, tuple[str, ...]]:
    """Text of a rule and ids of its cards; a rule is a text or ``{text: ..., cards: [ids]}``."""
    if data is None or isinstance(data, str):
        return reading.text(data, place), ()
    fields = reading.fields(data, place, RULE_FIELDS)
    cards = reading.items(fields.get("cards"), (*place, "cards"))
    return reading.text(fields.get("text"), (*place, "text")), tuple(reading.string(item, at) for item, at in cards)
