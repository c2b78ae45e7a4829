"""The dispatcher: tool calls are validated, run, answered and logged."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.calls import Caller, answered, refused
from jsonschema import Draft202012Validator

from strategist.agent import catalog, server_tools
from strategist.agent.pagination import dumps, tokens
from strategist.agent.problem import PROBLEM_CODES, problem_of
from strategist.agent.schema import argument_schema
from strategist.agent.tool import Tool
from strategist.contract.settings import SETTING_NAMES
from strategist.errors import FileError, InputError

TOOLS = (*catalog.TOOLS, *server_tools.TOOLS)


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object schema within a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_argument_schemas_are_closed_and_their_examples_valid(tool: Tool) -> None:
    Draft202012Validator.check_schema(tool.input_schema)
    assert all(schema["additionalProperties"] is False for schema in objects(tool.input_schema))
    assert "$ref" not in dumps(tool.input_schema)
    validator = Draft202012Validator(tool.input_schema)
    assert tool.examples
    for example in tool.examples:
        validator.validate(example)
        tool.parsed(example)
    assert not validator.is_valid({"surprise": 1})
    for name, schema in tool.input_schema["properties"].items():
        for example in schema.get("examples", ()):
            assert Draft202012Validator(schema).is_valid(example), (name, example)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_answer_schemas_are_closed(tool: Tool) -> None:
    Draft202012Validator.check_schema(tool.output_schema)
    assert tool.output_schema["type"] == "object"
    if tool.name != "more":  # returns further pages of every tool
        assert not Draft202012Validator(tool.output_schema).is_valid({"items": [], "surprise": 1})
    assert Draft202012Validator(tool.output_schema).is_valid({"code": "failed", "message": "disk full", "next": "free some space"})
    job = {"job": "job-1", "tool": tool.name, "progress": "", "seconds": 1.0, "items": []}
    assert Draft202012Validator(tool.output_schema).is_valid(job) == (tool.long or tool.name == "more")


def test_fix_lists_every_setting_with_its_values() -> None:
    fix = next(tool for tool in TOOLS if tool.name == "plan").input_schema["properties"]["fix"]["description"]
    for name in SETTING_NAMES:
        assert re.search(rf"\b{name}\b", fix)
    assert "recompute=none|selective|" in fix


def test_the_tool_list_takes_under_14000_tokens() -> None:
    assert sum(tokens(dumps(argument_schema(tool.arguments)) + tool.description) for tool in TOOLS) < 14_000


def test_a_problem_names_the_invalid_argument(dispatcher: Caller) -> None:
    problem = refused(dispatcher, "plan", model="8b")
    assert problem["code"] == "invalid_arguments"
    assert problem["message"] == "gpus: Field required"
    assert refused(dispatcher, "plan", model="8b", gpus="8x24GB", seq_len="long")["message"].startswith("seq_len:")
    assert refused(dispatcher, "nothing")["code"] == "unknown_tool"


def test_an_unknown_argument_is_answered_with_those_of_the_tool(dispatcher: Caller) -> None:
    problem = refused(dispatcher, "load_plan", **{"path; $(id)": "plan.json"}, file="plan.json")
    assert problem == {
        "code": "invalid_arguments", "message": "path; $(id): is not an argument of this tool", "next": "its arguments are file"
    }  # fmt: skip
    nested = refused(dispatcher, "advise", plan="58698c070e9c", measured={"speed": 1})
    assert nested["message"].startswith("measured.speed: ")
    assert nested["next"].startswith("write e.g. ")


def test_an_invalid_value_is_reported_by_its_argument_name(dispatcher: Caller) -> None:
    problem = refused(dispatcher, "plan", model="8b", gpus="8x")
    assert problem["code"] == "invalid_value"
    assert problem["message"].startswith("gpus 8x: ")
    assert "8x24GB" in problem["next"]


def test_problems_carry_known_codes() -> None:
    assert problem_of(InputError("--seq-len 0", "is none", "use --seq-len 8")).message == "seq_len 0: is none"
    missing = FileError(
        "p.json", "cannot be read; name another file, or write one with strategist plan --model M --gpus G -o p.json"
    )
    assert problem_of(missing).message == "p.json: cannot be read; name another file, or make one with plan and save_plan"
    assert {problem_of(error).code for error in (InputError("a", "b", "c"), FileError("a", "b"))} <= set(PROBLEM_CODES)


def test_every_call_is_logged_before_and_after(dispatcher: Caller, workspace: Path) -> None:
    answered(dispatcher, "list_cards", module="tp")
    refused(dispatcher, "plan", model="../x.json", gpus="8x24GB")
    dispatcher.read("strategist://nothing")
    lines = [json.loads(line) for line in (workspace / ".strategist" / "audit.jsonl").read_text().splitlines()]
    assert [(line["call"], line.get("tool"), line.get("ended")) for line in lines] == [
        (1, "list_cards", None), (1, None, "ok"), (2, "plan", None), (2, None, "outside_workspace"),
        (3, "resources/read", None), (3, None, "unknown_tool"),
    ]  # fmt: skip
    assert json.loads(lines[0]["arguments"]) == {"module": "tp"}


def test_a_call_that_cannot_be_logged_is_not_run(dispatcher: Caller, workspace: Path) -> None:
    shutil.rmtree(workspace / ".strategist")
    (workspace / ".strategist").write_text("in the way")
    problem = refused(dispatcher, "export", plan="x", format="pytorch", folder="out")
    assert (problem["code"], "audit.jsonl" in problem["message"]) == ("unreadable_file", True)
    assert not (workspace / "out").exists()
