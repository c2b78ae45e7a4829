"""The catalogue of errors equals the errors in the code, and each has a next step."""

import re

import pytest
from chaos import Chaos

from docs.errors import CLASSES, errors, pages, without_step
from strategist.agent.problem import PROBLEM_CODES


@pytest.mark.chaos("Bad input", "every user error has a next step, and is in the catalogue")
def test_every_error_has_a_next_step(chaos: Chaos) -> None:
    found = errors()
    assert [f"{error.file}:{error.line}: {error.text}" for error in found if without_step(error)] == []
    chaos.found(f"{len(found)} places raise an error, {sum(map(without_step, found))} without a next step")


def test_the_catalogue_has_every_message_once_under_the_code_of_its_class() -> None:
    [text] = pages().values()
    for kind in {error.kind for error in errors()}:
        part = text.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
        assert f"Code: `{CLASSES[kind].code}`." in part
        rows = [line for line in part.splitlines() if line.endswith(".py` |")]
        assert len(rows) == len(set(rows))
        expected = {(error.file, word) for error in errors() if error.kind == kind for word in re.findall(r"[a-z]{4,}", error.text)}
        shown = {(row.split("`")[-2], word) for row in rows for word in re.findall(r"[a-z]{4,}", row)}
        assert expected <= shown


def test_every_class_has_a_code_that_agents_know() -> None:
    assert {kind.code for kind in CLASSES.values()} <= set(PROBLEM_CODES)
