"""The page of screens shows the commands' current output."""

from docs.screens import LINES, PAGE, REQUESTS, screens


def test_the_published_screens_equal_the_current_output() -> None:
    assert PAGE.read_text(encoding="utf-8") == screens(), "make docs"


def test_answers_of_plan_fit_a_screen() -> None:
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(parts) == len(REQUESTS)
    answers = [part for part in parts if "$ strategist plan" in part]
    assert all(len(part.splitlines()) <= LINES + 8 and "more lines)" not in part for part in answers)
