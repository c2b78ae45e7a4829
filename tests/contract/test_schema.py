"""Published schemas: what commands print is what they say, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contract.samples import CLUSTER, MEASUREMENT, PLAN
from strategist.api_documents import DOCUMENTS, schema_of
from strategist.cli.main import main
from strategist.contract import codec

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "schemas"
TINY = ["--model", "tiny", "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "8"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_published_schema_is_the_generated_one(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads((PUBLISHED / f"{name}.schema.json").read_text()) == schema, "make docs"


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert main(["plan", *TINY, "--backend", "pytorch", "-o", str(path)]) == 0
    return str(path)


COMMANDS: dict[str, list[str]] = {
    "answer": ["plan", *TINY, "--tokens", "1B"],
    "explanation": ["explain", "PLAN"],
    "alternative": ["explain", "PLAN", "--why-not", "tp=2"],
    "comparison": ["compare", "PLAN", "PLAN"],
    "review": ["check", "PLAN"],
    "written": ["export", "PLAN", "--to", "pytorch"],
    "plan": ["import", "PLAN"],
    "topology": ["topo"],
    "model": ["models", "show", "deepseek-v3"],
    "cluster": ["hardware", "show", "h100"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_prints_keeps_to_its_schema(name: str, plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [plan_file if word == "PLAN" else word for word in COMMANDS[name]]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, schema_of(name))
    for broken in (printed | {"more": 1}, printed | {"version": 99}, {key: item for key, item in printed.items() if key != "type"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema_of(name))


@pytest.mark.parametrize("value", [MEASUREMENT, PLAN, CLUSTER], ids=lambda value: type(value).__name__)
def test_values_keep_to_their_schemas(value: Any) -> None:
    by_type = {kind: name for name, (kind, _) in DOCUMENTS.items()}
    jsonschema.validate(json.loads(codec.dumps(value)), schema_of(by_type[type(value)]))


def test_each_document_is_listed_and_another_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DOCUMENTS)
    assert main(["schema", "answr"]) == 2
    assert "did you mean answer" in capsys.readouterr().err
