"""Reader of cards. Entries in free text are accepted as advice."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

from strategist.cards.card import (
    ROOT,
    Card,
    Case,
    Claim,
    Condition,
    ControlPoint,
    Effect,
    EffectKind,
    Example,
    Interaction,
    Observable,
    Phase,
    Policy,
    Risk,
    SourceRef,
    Status,
    Text,
)
from strategist.cards.field_reader import CONTROL, DUPLICATE, FORM, NAME, SETTING, Inspected, KeyPath, Reading, UnknownWord, valid
from strategist.cards.flow import FLOW_ROOT, is_flow
from strategist.errors import FileError
from strategist.expr import check, evaluate
from strategist.expr.vocabulary import BOOL, CANDIDATE, CATEGORY, CONTROLS, INT, SETTINGS, VOCABULARY, near_miss, same_choice
from strategist.files.yaml_file import Document

T = TypeVar("T")
FIELDS = (
    "id", "title", "status", "since", "module", "intent", "validated_on", "preconditions", "control_points", "observables",
    "policies", "risks", "interactions", "evidence", "source_refs", "example", "cases",
)  # fmt: skip
CHANGES = ("execution", "convergence")
LINES = r"[1-9][0-9]{0,5}(-[1-9][0-9]{0,5})?"
MAX_RANKS = 8

OPTIONS = tuple(name for name in SETTINGS if name.startswith("options."))
COMPUTED: Mapping[EffectKind, Collection[str]] = {
    EffectKind.TRY: SETTINGS,
    **dict.fromkeys((EffectKind.REQUIRE, EffectKind.SET, EffectKind.PREFER), OPTIONS),
}
"""Settings that each effect may compute from an expression.

Options are resolved for one plan at a time, when all other settings are known.
"""

_FACT_NAMES = {name: name for name, entry in VOCABULARY.items() if entry.phase != CANDIDATE}
_CANDIDATE_NAMES = {key: name for name in VOCABULARY if name not in _FACT_NAMES for key in (name, name.partition(".")[2])}


def read_card(document: Document) -> Card:
    """The card in a document.

    Raises:
        FileError: the document is not a valid card; points at the first error.
    """
    if is_flow(document):
        raise FileError(document.path, f"is a {FLOW_ROOT}, not a {ROOT}; name a card")
    return valid(document, inspect(document))


def inspect(document: Document) -> Inspected[Card]:
    """The card in a document, without its invalid parts, and all errors in its form, from top to bottom.

    For a flow: None, without errors.
    """
    if is_flow(document):
        return None, ()
    return Reading(document).inspected(READERS)


def _read_1(reading: Reading) -> Card | None:
    root = reading.fields(reading.document.data, (), ("protocol", ROOT), (ROOT,))
    return _Card(reading).read(root[ROOT]) if ROOT in root else None


READERS = {1: _read_1}
"""Readers of cards by protocol. Readers of older protocols are kept."""


class _Card:
    """Reader of the sections of one card."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def read(self, data: Any) -> Card | None:
        key_path: KeyPath = (ROOT,)
        fields = self.reading.fields(data, key_path, FIELDS, ("module", "intent"))
        if not {"module", "intent"} <= set(fields):
            return None
        words = {name: self.reading.string(fields.get(name), (*key_path, name)) for name in ("id", "module", "since")}
        status = self.reading.string(fields.get("status"), (*key_path, "status"), tuple(Status)) or Status.PREVIEW

        def section(name: str, entry: Callable[[Any, KeyPath, int], T | None]) -> tuple[T, ...]:
            items = self.reading.items(fields.get(name), (*key_path, name))
            entries = [entry(item, item_path, number) for number, (item, item_path) in enumerate(items, 1)]
            return tuple(item for item in entries if item is not None)

        return Card(
            id=words["id"] or PurePath(self.reading.document.path).stem,
            module=words["module"],
            since=words["since"],
            status=Status(status),
            title=self.reading.text(fields.get("title"), (*key_path, "title")),
            intent=self.reading.text(fields["intent"], (*key_path, "intent")),
            validated_on=section("validated_on", lambda item, item_path, _: self.reading.string(item, item_path)),
            preconditions=section("preconditions", self.condition),
            control_points=section("control_points", self.control_point),
            observables=section("observables", self.observable),
            policies=self.unique(section("policies", self.policy), (*key_path, "policies")),
            risks=section("risks", self.risk),
            interactions=section("interactions", self.interaction),
            evidence=section("evidence", self.claim),
            source_refs=section("source_refs", self.source_ref),
            example=section("example", self.example),
            cases=section("cases", self.case),
            document=self.reading.document,
        )

    def unique(self, policies: tuple[Policy, ...], key_path: KeyPath) -> tuple[Policy, ...]:
        ids: set[str] = set()
        for index, policy in enumerate(policies):
            if policy.id in ids:
                self.reading.report(DUPLICATE, f"policy id {policy.id} appears twice", (*key_path, index, "id"))
            ids.add(policy.id)
        return policies

    def condition(self, data: Any, key_path: KeyPath, number: int) -> Condition:
        if isinstance(data, str):
            return Condition(text=Text(en=data))
        fields = self.reading.fields(data, key_path, ("when", "text"))
        when = self.reading.expression(fields.get("when"), (*key_path, "when"))
        return Condition(when=when, text=self.reading.text(fields.get("text"), (*key_path, "text")))

    def control_point(self, data: Any, key_path: KeyPath, number: int) -> ControlPoint:
        if isinstance(data, str):
            return ControlPoint(name=data)
        fields = self.reading.fields(data, key_path, ("name", "path", "values", "changes", "effect"), ("name",))
        path = self.reading.string(fields.get("path"), (*key_path, "path"))
        if path and path not in CONTROLS:
            message = f"{path} names no knob and no axis{near_miss(path, CONTROLS)}"
            self.reading.report(CONTROL, message, (*key_path, "path"), unknown_word=UnknownWord(path, CONTROLS))
            path = ""
        values = self.reading.values(CONTROLS[path], fields["values"], (*key_path, "values")) if path and "values" in fields else ()
        return ControlPoint(
            name=self.reading.string(fields.get("name"), (*key_path, "name")),
            path=path,
            values=values,
            changes=self.reading.string(fields.get("changes"), (*key_path, "changes"), CHANGES) or CHANGES[0],
            effect=self.reading.text(fields.get("effect"), (*key_path, "effect")),
        )

    def observable(self, data: Any, key_path: KeyPath, number: int) -> Observable:
        if isinstance(data, str):
            return Observable(name=data)
        fields = self.reading.fields(data, key_path, ("name", "metric"), ("name",))
        metric = self.reading.string(fields.get("metric"), (*key_path, "metric"))
        if metric and metric not in VOCABULARY:
            message = f"unknown name {metric}{near_miss(metric, VOCABULARY)}"
            self.reading.report(NAME, message, (*key_path, "metric"), unknown_word=UnknownWord(metric, VOCABULARY))
        return Observable(name=self.reading.string(fields.get("name"), (*key_path, "name")), metric=metric)

    def policy(self, data: Any, key_path: KeyPath, number: int) -> Policy:
        if isinstance(data, str):
            return Policy(id=f"advice-{number}", because=Text(en=data))
        fields = self.reading.fields(data, key_path, ("id", "phase", "when", "because", *EffectKind), ("id",))
        phase = Phase(self.reading.string(fields.get("phase"), (*key_path, "phase"), tuple(Phase)) or Phase.PLAN)
        effects = tuple(self.effect(kind, fields[kind], (*key_path, kind), phase) for kind in EffectKind if kind in fields)
        return Policy(
            id=self.reading.string(fields.get("id"), (*key_path, "id")),
            phase=phase,
            when=self.reading.expression(fields.get("when"), (*key_path, "when")),
            effects=effects,
            because=self.reading.text(fields.get("because"), (*key_path, "because")),
        )

    def effect(self, kind: EffectKind, data: Any, key_path: KeyPath, phase: Phase) -> Effect:
        if (kind is EffectKind.TRY) != (phase is Phase.OBSERVE) and kind is not EffectKind.WARN:
            law = "try acts after a trial: write phase: observe" if kind is EffectKind.TRY else f"{kind} acts before a trial"
            self.reading.report(SETTING, law, key_path, key=True)
        if kind is EffectKind.WARN:
            if data is not True:
                self.reading.report(FORM, "warn is true or left out", key_path)
            return Effect(kind=kind)
        if data == "candidate" and kind in (EffectKind.FORBID, EffectKind.PREFER):
            return Effect(kind=kind)
        return Effect(kind=kind, settings=self.reading.settings(data, key_path, computed=COMPUTED.get(kind, ())))

    def risk(self, data: Any, key_path: KeyPath, number: int) -> Risk:
        if isinstance(data, str):
            return Risk(id=f"risk-{number}", text=Text(en=data))
        fields = self.reading.fields(data, key_path, ("id", "when", "text", "fallback"), ("text",))
        fallback = self.reading.settings(fields["fallback"], (*key_path, "fallback")) if "fallback" in fields else ()
        return Risk(
            id=self.reading.string(fields.get("id"), (*key_path, "id")) or f"risk-{number}",
            when=self.reading.expression(fields.get("when"), (*key_path, "when")),
            text=self.reading.text(fields.get("text"), (*key_path, "text")),
            fallback=fallback,
        )

    def interaction(self, data: Any, key_path: KeyPath, number: int) -> Interaction:
        if isinstance(data, str):
            return Interaction(card=data)
        fields = self.reading.fields(data, key_path, ("card", "text"), ("card",))
        card = self.reading.string(fields.get("card"), (*key_path, "card"))
        return Interaction(card=card, text=self.reading.text(fields.get("text"), (*key_path, "text")))

    def claim(self, data: Any, key_path: KeyPath, number: int) -> Claim:
        if isinstance(data, str):
            return Claim(text=Text(en=data))
        fields = self.reading.fields(data, key_path, ("text", "source"), ("text",))
        source = self.reading.string(fields.get("source"), (*key_path, "source"))
        return Claim(text=self.reading.text(fields.get("text"), (*key_path, "text")), source=source)

    def source_ref(self, data: Any, key_path: KeyPath, number: int) -> SourceRef:
        if isinstance(data, str):
            return SourceRef(note=Text(en=data))
        fields = self.reading.fields(data, key_path, ("symbol", "parameter", "lines", "url", "note"))
        words = {name: self.reading.string(fields.get(name), (*key_path, name)) for name in ("symbol", "parameter", "url")}
        if "lines" in fields and not words["symbol"]:
            self.reading.report(FORM, "lines are those of a symbol: name it", (*key_path, "lines"), key=True)
        note = self.reading.text(fields.get("note"), (*key_path, "note"))
        return SourceRef(lines=self.lines(fields.get("lines"), (*key_path, "lines")), note=note, **words)

    def lines(self, data: Any, key_path: KeyPath) -> tuple[int, int] | None:
        """First and last line in a text such as ``144-161`` or ``144``."""
        text = self.reading.string(data, key_path)
        first, _, last = text.partition("-")
        if text and re.fullmatch(LINES, text) and int(first) <= int(last or first):
            return int(first), int(last or first)
        if text:
            self.reading.report(FORM, f"{text}: the first and last line are needed, such as 144-161", key_path)
        return None

    def example(self, data: Any, key_path: KeyPath, number: int) -> Example:
        if isinstance(data, str):
            return Example(text=Text(en=data.strip()))
        fields = self.reading.fields(data, key_path, ("run", "ranks", "refused"), ("run",))
        ranks = fields.get("ranks", 1)
        if type(ranks) is not int or not 1 <= ranks <= MAX_RANKS:
            self.reading.report(FORM, f"ranks is a whole number from 1 to {MAX_RANKS}, not {ranks!r}", (*key_path, "ranks"))
            ranks = 1
        words = {name: self.reading.string(fields.get(name), (*key_path, name)) for name in ("run", "refused")}
        return Example(run=words["run"], ranks=ranks, refused=words["refused"])

    def case(self, data: Any, key_path: KeyPath, number: int) -> Case:
        fields = self.reading.fields(data, key_path, ("given", "expect"), ("given", "expect"))
        given = self.reading.fields(fields.get("given", {}), (*key_path, "given"), ("facts", "candidate"))
        given_path = (*key_path, "given")
        facts = self.facts(given.get("facts", {}), (*given_path, "facts"), candidate=False)
        candidate = self.facts(given.get("candidate", {}), (*given_path, "candidate"), candidate=True)
        expect, expect_path = fields.get("expect", "allowed"), (*key_path, "expect")
        if isinstance(expect, str):
            return Case(
                facts=facts, candidate=candidate, verdict=self.reading.string(expect, expect_path, ("forbidden", "allowed"))
            )
        expected = self.reading.fields(expect, expect_path, ("reasons", "proposes"))
        reasons = self.reading.items(expected["reasons"], (*expect_path, "reasons")) if "reasons" in expected else None
        proposes = self.facts(expected["proposes"], (*expect_path, "proposes"), candidate=True) if "proposes" in expected else None
        return Case(
            facts=facts,
            candidate=candidate,
            reasons=None if reasons is None else tuple(self.reading.string(item, item_path) for item, item_path in reasons),
            proposes=proposes,
        )

    def facts(self, data: Any, key_path: KeyPath, *, candidate: bool) -> dict[str, Any]:
        """Values by full name; numbers may have a unit."""
        if not isinstance(data, dict):
            self.reading.report(FORM, "names with their values are needed", key_path)
            return {}
        known = _CANDIDATE_NAMES if candidate else _FACT_NAMES
        facts = {}
        for key, value in data.items():
            name = known.get(key)
            if name is None:
                message, unused_names = (
                    f"unknown name {key}{near_miss(key, known)}",
                    [name for name in known if known[name] not in facts],
                )
                self.reading.report(NAME, message, (*key_path, key), key=True, unknown_word=UnknownWord(key, unused_names))
            else:
                facts[name] = self.fact(name, value, (*key_path, key))
        return facts

    def fact(self, name: str, value: Any, key_path: KeyPath) -> Any:
        entry = VOCABULARY[name]
        if entry.kind == CATEGORY:
            is_valid = any(same_choice(value, choice) for choice in entry.choices)
        elif entry.kind == BOOL:
            is_valid = isinstance(value, bool)
        else:
            if isinstance(value, str):
                quantity = self.reading.expression(value, key_path, partial(check.quantity, unit=entry.unit))
                value = evaluate.scalar(quantity, {}) if quantity else entry.low
            is_valid = isinstance(value, int | float) and not isinstance(value, bool) and (entry.low or 0) <= value <= 1e30
            value = round(value) if is_valid and entry.kind == INT else value
        if not is_valid:
            self.reading.report(SETTING, f"{value!r} is not a value of {name}", key_path)
        return value
