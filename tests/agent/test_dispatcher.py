"""Calls at the desk: looked at, done, answered, and written down."""

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
    """Every schema of an object inside a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_argument_schemas_are_closed_and_their_examples_legal(tool: Tool) -> None:
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
def test_answers_have_a_schema_that_is_closed(tool: Tool) -> None:
    Draft202012Validator.check_schema(tool.output_schema)
    assert tool.output_schema["type"] == "object"
    if tool.name != "more":  # which turns the pages of all
        assert not Draft202012Validator(tool.output_schema).is_valid({"items": [], "surprise": 1})
    assert Draft202012Validator(tool.output_schema).is_valid({"code": "failed", "message": "disk full", "next": "free some space"})
    job = {"job": "job-1", "tool": tool.name, "progress": "", "seconds": 1.0, "items": []}
    assert Draft202012Validator(tool.output_schema).is_valid(job) == (tool.long or tool.name == "more")


def test_fix_lists_every_setting_with_its_values() -> None:
    fix = next(tool for tool in TOOLS if tool.name == "plan").input_schema["properties"]["fix"]["description"]
    for name in SETTING_NAMES:
        assert re.search(rf"\b{name}\b", fix)
    assert "recompute=none|selective|" in fix


def test_the_whole_list_of_tools_fits_a_context() -> None:
    assert sum(tokens(dumps(argument_schema(tool.arguments)) + tool.description) for tool in TOOLS) < 14_000


def test_wrong_arguments_are_named_with_an_example_that_is_right(dispatcher: Caller) -> None:
    problem = refused(dispatcher, "plan", model="8b")
    assert problem["code"] == "invalid_arguments"
    assert problem["message"] == "gpus: Field required"
    assert refused(dispatcher, "plan", model="8b", gpus="8x24GB", seq_len="long")["message"].startswith("seq_len:")
    assert refused(dispatcher, "nothing")["code"] == "unknown_tool"


def test_a_value_that_breaks_a_law_is_said_in_the_names_of_arguments(dispatcher: Caller) -> None:
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


def test_every_call_is_written_down_before_and_after(dispatcher: Caller, workspace: Path) -> None:
    answered(dispatcher, "list_cards", module="tp")
    refused(dispatcher, "plan", model="../x.json", gpus="8x24GB")
    dispatcher.read("strategist://nothing")
    lines = [json.loads(line) for line in (workspace / ".strategist" / "audit.jsonl").read_text().splitlines()]
    assert [(line["call"], line.get("tool"), line.get("ended")) for line in lines] == [
        (1, "list_cards", None), (1, None, "ok"), (2, "plan", None), (2, None, "outside_workspace"),
        (3, "resources/read", None), (3, None, "unknown_tool"),
    ]  # fmt: skip
    assert json.loads(lines[0]["arguments"]) == {"module": "tp"}


def test_what_cannot_be_written_down_is_not_done(dispatcher: Caller, workspace: Path) -> None:
    shutil.rmtree(workspace / ".strategist")
    (workspace / ".strategist").write_text("in the way")
    problem = refused(dispatcher, "export", plan="x", format="pytorch", folder="out")
    assert (problem["code"], "audit.jsonl" in problem["message"]) == ("unreadable_file", True)
    assert not (workspace / "out").exists()
