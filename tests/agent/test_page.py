"""What docs/agents.md and llms.txt say is what there is."""

import re
from pathlib import Path

import pytest
from agent.page import PAGE, page, tables

from strategist.agent.prompts import PROMPTS
from strategist.agent.resources import RESOURCES

ROOT = PAGE.parents[1]


def test_the_page_has_the_problems_and_the_tools_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tables(text) == text, "run make docs"


@pytest.mark.torch
@pytest.mark.full
def test_the_page_shows_what_the_server_answers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run make docs"


def test_the_page_names_every_resource_and_prompt() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in (
        *(item.address.removeprefix("strategist://").split("{")[0] for item in RESOURCES),
        *(item.__name__ for item in PROMPTS),
    ):
        assert name in text


def test_every_link_for_language_models_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text(encoding="utf-8"))
    assert len(links) > 8
    assert [link for link in links if not Path(ROOT / link).exists()] == []
