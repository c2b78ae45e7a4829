"""The catalogue of errors is that of the code, and each of them says what to do."""

import pytest
from chaos import Chaos

from docs.errors import CLASSES, PAGE, errors, page, without_step
from strategist.agent.problem import CODES


@pytest.mark.chaos("Bad input", "every error that a person can cause says what to do, and stands in the catalogue")
def test_every_error_says_what_to_do(chaos: Chaos) -> None:
    found = errors()
    assert [f"{error.file}:{error.line}: {error.text}" for error in found if without_step(error)] == []
    chaos.found(f"{len(found)} places raise one, {sum(map(without_step, found))} without a next step")


def test_the_published_catalogue_is_the_generated_one() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "make docs"


def test_every_class_has_a_code_that_agents_know() -> None:
    assert {kind.code for kind in CLASSES.values()} <= set(CODES)
