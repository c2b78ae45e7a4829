"""docs/agents.md is up to date."""

import pytest
from agent.page import PAGE, page, tables

from strategist.agent.prompts import PROMPTS
from strategist.agent.resources import RESOURCES


def test_the_page_lists_all_problems_and_tools() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tables(text) == text, "run make docs"


@pytest.mark.torch
@pytest.mark.full
def test_the_session_on_the_page_matches_the_server() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run make docs"


def test_the_page_names_every_resource_and_prompt() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in (
        *(item.address.removeprefix("strategist://").split("{")[0] for item in RESOURCES),
        *(item.__name__ for item in PROMPTS),
    ):
        assert name in text
