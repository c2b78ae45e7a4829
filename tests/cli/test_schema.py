"""Published schemas: the JSON of each command is valid, and changed documents are not."""

import argparse
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from programs.quick import quick_program, quick_tuning
from tuner.studies import tuned

from strategist import api
from strategist.api.documents import DOCUMENTS, schema_of
from strategist.cli.main import COMMANDS, main, whole_parser
from strategist.paths import data_dir
from tests.report.published import LAYOUTS as SWEEP, write

TINY = ["--model", "tiny", "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "8"]
CARD = """
protocol: 1
StrategyCard:
  id: MY-001
  module: tp
  intent: Anything goes.
  policies:
  - {id: never, when: layout.tp > 1, forbid: {tp: 2}, because: It is a test.}
  cases:
  - {given: {candidate: {tp: 2}}, expect: allowed}
"""
LAYOUTS = data_dir("profiles") / "measurements" / "tiny-4xcpu-layouts.jsonl"
STARTS_TORCH = ("simulate", "shadow", "scale", "profile")
CARDS = ("card",)
"""Schemas of YAML files: ``strategist cards schema``."""

ELSEWHERE = {"line", "transfer"}
"""Documents tested below and in tests/tuner/test_transfer_benchmark.py, since the command takes minutes."""

PRINTED: dict[str, tuple[tuple[str, list[str]], ...]] = {
    "plan": (("answer", [*TINY, "--tokens", "1B"]),),
    "run": (("measurement", ["quick.json", "--backend", "quick.yaml", "--steps", "3", "--out", "out"]),),
    "tune": (
        ("tuning", [*TINY, "--backend", "quick.yaml", "--study", "tuned", "--trials", "1", "--steps", "3", "--confirm", "0"]),
    ),
    "study list": (("studies", ["."]),),
    "study show": (("study", ["study"]),),
    "study watch": (("trial", ["study", "--idle", "0"]),),
    "watch": (("trial", ["study", "--idle", "0"]),),
    "explain": (("explanation", ["plan.json"]), ("why-not", ["plan.json", "--why-not", "tp=2"])),
    "compare": (("comparison", ["plan.json", "native.json"]),),
    "check": (("review", ["plan.json"]), ("reviews", ["alone.json", "alone.json"])),
    "import": (("plan", ["plan.json"]),),
    "export": (("written", ["plan.json", "--to", "pytorch"]),),
    "simulate": (("simulation", ["native.json"]),),
    "shadow": (("measurement", ["native.json", "--steps", "1", "--out", "shadow"]),),
    "scale": (("scaling", ["native.json", "--gpus", "1", "--steps", "1"]),),
    "profile": (("machine", ["--cpu", "--ranks", "2", "-o", "here.yaml"]),),
    "topo": (("topology", []),),
    "doctor": (("findings", ["--folder", "."]),),
    "cards list": (("cards", []),),
    "cards show": (("card", ["FSDP-001"]),),
    "cards lint": (("findings", ["card.yaml", "--no-sources"]),),
    "cards explain": (("lint-page", ["CARD013"]), ("lint-pages", [])),
    "cards evidence": (("evidence", ["--measurements", "some.jsonl"]),),
    "cards test": (("card-tests", ["card.yaml"]),),
    "accuracy": (("accuracy", ["--data", "runs", "--worst", "2"]),),
    "bench replay": (("replay", ["--data", str(LAYOUTS), "--samplers", "order", "--seeds", "1"]),),
    "programs": (("programs", []), ("program", ["torchtitan"]), ("program", ["quick.yaml", "--plan", "quick.json"])),
    "models list": (("models", []),),
    "models show": (("model", ["deepseek-v3"]),),
    "hardware list": (("clusters", []),),
    "hardware show": (("cluster", ["h100"]),),
    "profiles": (("names", []),),
    "config": (("configuration", []),),
}
"""By command: the documents that the command prints, each with its arguments."""

ROWS = [
    (name, [*command.split(), *words])
    for command, commands in PRINTED.items()
    for name, words in commands
]  # fmt: skip


def with_json(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Commands with ``--json``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from with_json(command, (*path, name))
        elif "--json" in action.option_strings:
            yield " ".join(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files that the commands read."""
    place = tmp_path_factory.mktemp("asked")
    quick_program(place)
    (place / "card.yaml").write_text(CARD, encoding="utf-8")
    tuned(place / "study", 2)
    for name, backend in (("plan", "pytorch"), ("native", "native"), ("quick", str(place / "quick.yaml"))):
        assert main(["plan", *TINY, "--backend", backend, "-o", str(place / f"{name}.json")]) == 0
    assert main(["plan", *TINY, "--gpus", "1xcpu", "-o", str(place / "alone.json")]) == 0
    some = LAYOUTS.read_text(encoding="utf-8").splitlines(keepends=True)[:16]
    (place / "some.jsonl").write_text("".join(some), encoding="utf-8")
    (place / "runs").mkdir()
    write(place / "runs", "sweep", SWEEP)
    return place


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """The documents that a command prints; JSON lines for watch and --json-lines."""
    capsys.readouterr()
    assert main([*words]) in (0, 1)
    text = capsys.readouterr().out
    if "watch" in words or "--json-lines" in words:
        return [json.loads(line) for line in text.splitlines()]
    return [json.loads(text)]


@cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    """Validator of a document; checks that the schema is valid."""
    found = api.schema(name) if name in CARDS else schema_of(name)
    validator = jsonschema.validators.validator_for(found)
    validator.check_schema(found)
    return validator(found)


def test_every_command_with_json_and_every_document_is_tested() -> None:
    assert set(with_json(whole_parser(COMMANDS))) == set(PRINTED)
    assert {name for name, _ in ROWS} == {*DOCUMENTS, *CARDS} - ELSEWHERE


def _marks(words: list[str]) -> list[pytest.MarkDecorator]:
    """Marks of commands that start ranks or replay a sweep, which take long."""
    starts_torch = words[0] in STARTS_TORCH
    return [*([pytest.mark.torch] if starts_torch else []), *([pytest.mark.full] if starts_torch or words[0] == "bench" else [])]


@pytest.mark.parametrize(
    ("name", "words"),
    [pytest.param(*row, marks=_marks(row[1]), id=" ".join(row[1][:3])) for row in ROWS],
)
def test_the_json_of_a_command_is_valid_for_its_schema(
    name: str, words: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for document in printed([*words, "--json"], capsys):
        assert document
        schema(name).validate(document)
        for broken in _broken(document):
            assert not schema(name).is_valid(broken)


def _broken(document: Any) -> Iterator[Any]:
    """Invalid variants of a document: another version, no type, an unknown field."""
    if isinstance(document, dict) and "type" in document:
        yield document | {"version": 99}
        yield {key: value for key, value in document.items() if key != "type"}
        yield document | {"more": 1}
    elif isinstance(document, dict):
        yield document | {"more": [{"no": "such"}]}
    else:
        yield [*document, {"more": 1}]


def test_json_lines_of_a_tuning_are_valid_for_their_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed([*quick_tuning(tmp_path), "--trials", "1", "--steps", "3", "--json-lines"], capsys)
    assert len(lines) >= 3
    for line in lines:
        schema("line").validate(line)


def test_schemas_are_listed_and_an_unknown_name_prints_one_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DOCUMENTS)
    assert main(["schema", "answr"]) == 2
    assert "did you mean answer" in capsys.readouterr().err
