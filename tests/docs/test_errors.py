"""The catalogue of errors is that of the code, and each of them says what to do."""

import re

import pytest
from chaos import Chaos

from docs.errors import CLASSES, errors, pages, without_step
from strategist.agent.problem import PROBLEM_CODES


@pytest.mark.chaos("Bad input", "every error that a person can cause says what to do, and stands in the catalogue")
def test_every_error_says_what_to_do(chaos: Chaos) -> None:
    found = errors()
    assert [f"{error.file}:{error.line}: {error.text}" for error in found if without_step(error)] == []
    chaos.found(f"{len(found)} places raise one, {sum(map(without_step, found))} without a next step")


def test_the_catalogue_has_every_message_once_under_the_code_of_its_class() -> None:
    [text] = pages().values()
    for kind in {error.kind for error in errors()}:
        part = text.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
        assert f"Code: `{CLASSES[kind].code}`." in part
        rows = [line for line in part.splitlines() if line.endswith(".py` |")]
        assert len(rows) == len(set(rows))
        said = {(error.file, word) for error in errors() if error.kind == kind for word in re.findall(r"[a-z]{4,}", error.text)}
        shown = {(row.split("`")[-2], word) for row in rows for word in re.findall(r"[a-z]{4,}", row)}
        assert said <= shown


def test_every_class_has_a_code_that_agents_know() -> None:
    assert {kind.code for kind in CLASSES.values()} <= set(PROBLEM_CODES)
