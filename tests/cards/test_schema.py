"""The JSON Schemas agree with the readers, and contain the vocabulary's texts."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from strategist.cards.deck import card_files
from strategist.cards.flow import is_flow
from strategist.cards.flow_reader import inspect_flow
from strategist.cards.reader import inspect
from strategist.cards.schema import SCHEMA_FILES, SCHEMAS, card_schema, flow_schema
from strategist.cli.main import main
from strategist.expr.vocabulary import SETTINGS
from strategist.files import yaml_file
from strategist.paths import data_dir

VALIDATOR = Draft202012Validator(card_schema())
FLOWS = Draft202012Validator(flow_schema())
CARD: dict[str, Any] = {"module": "tp", "intent": "Why"}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schema_is_valid(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind]())


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_published_schema_equals_the_generated_schema(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    published = data_dir("cards") / "schema" / SCHEMA_FILES[kind]
    assert main(["cards", "schema", kind]) == 0
    again = f"strategist cards schema {kind} > {published}"
    assert published.read_text(encoding="utf-8") == capsys.readouterr().out, again


def test_the_schema_describes_every_setting() -> None:
    definitions = card_schema()["$defs"]
    for name, entry in SETTINGS.items():
        assert definitions[name]["description"] == entry.doc
        assert name in definitions["settings"]["properties"]


def test_every_shipped_card_is_valid() -> None:
    def faults(path: Path) -> list[str]:
        document = yaml_file.load(path)
        validator, name = (FLOWS, SCHEMA_FILES["flow"]) if is_flow(document) else (VALIDATOR, SCHEMA_FILES["card"])
        wanted = [f"# yaml-language-server: $schema=../schema/{name}", "protocol: 1"]
        lines = path.read_text(encoding="utf-8").splitlines()[:2]
        differences = [f"{line} instead of {other}" for line, other in zip(lines, wanted, strict=True) if line != other]
        return [*differences, *(error.message for error in validator.iter_errors(document.data))]

    paths = list(card_files(data_dir("cards")))
    assert len(paths) >= 50
    assert [(path.stem, fault) for path in paths for fault in faults(path)] == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"policies": ["root: False, others: True"], "risks": ["slow"], "example": ["f()"], "source_refs": ["a.py:1"]},
        {"policies": [{"id": "a", "forbid": "candidate", "when": "layout.tp > 1"}]},
        {"policies": [{"id": "a", "phase": "observe", "try": {"micro_batch": "knobs.micro_batch * 2"}}]},
        {"title": {"en": "a", "zh": "b"}, "status": "stable"},
        {"polices": []},
        {"status": "good"},
        {"policies": [{"id": "a", "require": "candidate"}]},
        {"policies": [{"id": "a", "require": {"recompute": "nonsense"}}]},
        {"policies": [{"id": "a", "require": {"tp": 0}}]},
        {"policies": [{"id": "a", "require": {}}]},
        {"policies": [{"when": "layout.tp > 1"}]},
        {"control_points": [{"name": "a", "path": "knobs.nothing"}]},
        {"observables": [{"name": "a", "metric": "observed.nothing"}]},
        {"cases": [{"given": {"facts": {"model.nothing": 1}}, "expect": "allowed"}]},
        {"cases": [{"given": {"candidate": {"tp": 2}}, "expect": "maybe"}]},
        {"title": 3},
        {"example": [{"run": "print(1)", "ranks": 2, "refused": "no device"}]},
        {"example": [{"run": "print(1)", "ranks": 9}]},
        {"example": [{"ranks": 2}]},
        {"source_refs": [{"symbol": "torch.a", "lines": "144-161"}, {"symbol": "torch.a", "lines": "7"}]},
        {"source_refs": [{"symbol": "torch.a", "lines": "all"}]},
        {"source_refs": [{"url": "https://a", "lines": "1-2"}]},
    ],
)
def test_schema_and_reader_agree(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = tmp_path / "card.yaml"
    data = {"StrategyCard": CARD | fields}
    path.write_text(json.dumps(data), encoding="utf-8")
    assert VALIDATOR.is_valid(data) is not bool(inspect(yaml_file.load(path))[1])


@pytest.mark.parametrize("protocol", [1, 2, 0, "1", True, None])
def test_schema_and_reader_agree_on_the_protocol(tmp_path: Path, protocol: object) -> None:
    path = tmp_path / "card.yaml"
    data = {"protocol": protocol, "StrategyCard": CARD}
    path.write_text(json.dumps(data), encoding="utf-8")
    assert VALIDATOR.is_valid(data) is not bool(inspect(yaml_file.load(path))[1])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"steps": [{"id": "a", "decides": ["tp", "knobs.recompute"], "when": "layout.tp > 1", "rule": "In words."}]},
        {"steps": [{"id": "a", "decides": [], "rule": {"text": {"en": "a", "zh": "b"}, "cards": ["TP-001"]}}]},
        {"steps": [{"id": "a", "decides": ["tpp"]}]},
        {"steps": [{"id": "a"}]},
        {"steps": [{"decides": ["tp"]}]},
        {"steps": [{"id": "a", "decides": ["tp"], "rule": {"card": "TP-001"}}]},
        {"steps": [{"id": "a", "decides": ["tp"], "because": 3}]},
        {"step": []},
    ],
)
def test_schema_and_reader_of_flows_agree(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = tmp_path / "flow.yaml"
    data = {"DecisionFlow": {"steps": [], **fields}}
    path.write_text(json.dumps(data), encoding="utf-8")
    assert FLOWS.is_valid(data) is not bool(inspect_flow(yaml_file.load(path))[1])
