"""Calls at the desk: looked at, done, answered, and written down."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.calls import answered, refused
from jsonschema import Draft202012Validator

from strategist.agent.audit import Audit
from strategist.agent.catalog import TOOLS
from strategist.agent.desk import Desk
from strategist.agent.problem import CODES, problem_of
from strategist.agent.room import Room
from strategist.agent.schema import arguments
from strategist.agent.sheet import Sheet, dumps, tokens
from strategist.agent.tool import Tool
from strategist.errors import FileError, InputError


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
def test_schemas_are_closed_and_their_examples_legal(tool: Any) -> None:
    Draft202012Validator.check_schema(tool.arguments)
    assert all(schema["additionalProperties"] is False for schema in objects(tool.arguments))
    validator = Draft202012Validator(tool.arguments)
    assert tool.examples
    for example in tool.examples:
        validator.validate(example)
    assert not validator.is_valid({"surprise": 1})
    for name, schema in tool.arguments["properties"].items():
        for example in schema.get("examples", ()):
            assert Draft202012Validator(schema).is_valid(example), (name, example)


def test_the_whole_list_of_tools_fits_a_context(desk: Desk) -> None:
    assert sum(tokens(dumps(tool.arguments) + tool.description) for tool in desk.tools.values()) < 10_000


def test_wrong_arguments_are_named_with_an_example_that_is_right(desk: Desk) -> None:
    problem = refused(desk, "plan", model="8b")
    assert problem["code"] == "invalid_arguments"
    assert "'gpus' is a required property" in problem["message"]
    assert refused(desk, "plan", model="8b", gpus="8x24GB", seq_len="long")["message"].startswith("seq_len:")
    assert refused(desk, "nothing")["code"] == "unknown_tool"


def test_a_value_that_breaks_a_law_is_said_in_the_names_of_arguments(desk: Desk) -> None:
    problem = refused(desk, "plan", model="8b", gpus="8x")
    assert problem["code"] == "invalid_value"
    assert problem["message"].startswith("gpus 8x: ")
    assert "8x24GB" in problem["next"]


def test_problems_carry_known_codes() -> None:
    assert problem_of(InputError("--seq-len 0", "is none", "use --seq-len 8")).message == "seq_len 0: is none"
    assert {problem_of(error).code for error in (InputError("a", "b", "c"), FileError("a", "b"))} <= set(CODES)


def test_a_defect_ends_one_call_only(desk: Desk, tmp_path: Path) -> None:
    def divide(room: Room, arguments: dict[str, Any]) -> Sheet:
        return Sheet(head=1 // 0)

    broken = Tool(name="divide", description="Divides.", arguments=arguments({}), examples=({},), function=divide)
    own = Desk(desk.room, Audit(tmp_path / "audit.jsonl"), (*TOOLS, broken))
    assert refused(own, "divide")["code"] == "failed"
    assert answered(own, "list_cards")["cards"] > 50


def test_every_call_is_written_down_before_and_after(desk: Desk, workspace: Path) -> None:
    answered(desk, "list_cards", module="tp")
    refused(desk, "plan", model="../x.json", gpus="8x24GB")
    desk.read("strategist://nothing")
    lines = [json.loads(line) for line in (workspace / ".strategist" / "audit.jsonl").read_text().splitlines()]
    assert [(line["call"], line.get("tool"), line.get("ended")) for line in lines] == [
        (1, "list_cards", None), (1, None, "ok"), (2, "plan", None), (2, None, "outside_workspace"),
        (3, "resources/read", None), (3, None, "unknown_tool"),
    ]  # fmt: skip
    assert json.loads(lines[0]["arguments"]) == {"module": "tp"}


def test_what_cannot_be_written_down_is_not_done(desk: Desk, workspace: Path) -> None:
    (workspace / ".strategist").rmdir()
    (workspace / ".strategist").write_text("in the way")
    with pytest.raises(FileError, match=r"audit\.jsonl"):
        desk.call("export", {"plan": "x", "format": "pytorch", "folder": "out"})
    assert not (workspace / "out").exists()
