"""The schema says what the reader says."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from strategist import yamlfile
from strategist.cards.deck import card_files
from strategist.cards.reader import inspect
from strategist.cards.schema import card_schema
from strategist.paths import data_dir

VALIDATOR = Draft202012Validator(card_schema())
CARD: dict[str, Any] = {"module": "tp", "intent": "Why"}


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(card_schema())


@pytest.mark.parametrize("path", card_files(data_dir("cards")), ids=lambda path: path.stem)
def test_every_shipped_card_is_valid(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yamlfile.load(path).data)] == []


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
    assert VALIDATOR.is_valid(data) is not bool(inspect(yamlfile.load(path))[1])
