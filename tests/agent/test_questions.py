"""Thirty questions, each answered from tool replies alone through a real client."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from agent.questions import DEEPSPEED, QUESTIONS, Answers, Question
from mcp import Client, StdioServerParameters, stdio_client

from strategist.agent.pagination import tokens

MOST_CALLS = 3


def filled(arguments: Any, answers: Answers) -> Any:
    """The arguments, with references replaced by fields of earlier answers."""
    if isinstance(arguments, dict):
        return {name: filled(value, answers) for name, value in arguments.items()}
    if isinstance(arguments, str) and arguments.startswith("$"):
        number, *path = arguments[1:].split(".")
        found: Any = answers[int(number)]
        for name in path:
            found = found[name]
        return found
    return arguments


SHORT = [question for question in QUESTIONS if not question.long]
SOME = SHORT[::4]


@pytest.mark.parametrize(
    "questions",
    [
        pytest.param(SOME, id="some"),
        pytest.param([question for question in QUESTIONS if question not in SOME], id="others", marks=pytest.mark.full),
    ],
)
def test_every_question_is_answered_correctly(workspace: Path, questions: list[Question]) -> None:
    (workspace / "ds.json").write_text(json.dumps(DEEPSPEED))
    arguments = ["-m", "strategist.cli.main", "mcp", "--workspace", str(workspace)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    wrong: dict[str, Any] = {}

    async def ask() -> None:
        async with Client(stdio_client(server)) as client:
            asked: dict[str, Any] = {}  # equal calls have equal answers, and are made once
            for question in questions:
                answers: Answers = []
                for tool, given in question.calls:
                    wanted = filled(given, answers)
                    key = json.dumps([tool, wanted], sort_keys=True)
                    if key not in asked:
                        asked[key] = await client.call_tool(tool, wanted)
                        assert tokens(asked[key].content[0].text) < 2_000, key
                    assert not asked[key].is_error, (question.text, asked[key].structured_content)
                    answers.append(asked[key].structured_content)
                found = question.answer(answers)
                if not (question.right(found) if callable(question.right) else found == question.right):
                    wrong[question.text] = found

    anyio.run(ask)
    assert wrong == {}


def test_there_are_thirty_questions_of_at_most_three_calls() -> None:
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS) == 30
    assert all(len(question.calls) <= MOST_CALLS for question in QUESTIONS)
