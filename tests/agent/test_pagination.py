"""Pagination of answers."""

import pytest

from strategist.agent.pagination import MAX_SHEETS, Answer, Pages, dumps, tokens
from strategist.agent.problem import RefusedError


def answer(head: str, words: int) -> Answer:
    return {"word": head}, [{"word": f"{head} {number} " + "abcd " * 20} for number in range(words)]


def test_pages_contain_every_item_once_and_in_order() -> None:
    pages, wanted = Pages(), answer("all", 200)
    page = pages.first(wanted)
    assert page["word"] == "all"
    seen, count = list(page["items"]), 1
    while "handle" in page:
        assert page["left"] == 200 - len(seen)
        page = pages.more(page["handle"])
        assert "word" not in page
        seen += page["items"]
        count += 1
    assert seen == wanted[1]
    assert count > 2


def test_each_page_takes_under_2000_tokens() -> None:
    pages = Pages()
    page = pages.first(answer("small", 500))
    while "handle" in page:
        assert tokens(dumps(page)) < 2_000
        page = pages.more(page["handle"])


def test_a_single_page_answer_has_no_handle() -> None:
    assert set(Pages().first(answer("one", 2))) == {"word", "items"}


def test_an_item_that_is_too_long_is_truncated_with_a_note() -> None:
    page = Pages().first(({"word": "head"}, [{"word": "x" * 100_000}]))
    assert page["items"][0]["word"].endswith("characters more)")
    assert tokens(dumps(page)) < 2_000


@pytest.mark.parametrize("handle", ["", "nothing-3", "x-y", "-1", "{key}-0", "{key}-999", "{key}--1"])
def test_an_unknown_handle_is_refused(handle: str) -> None:
    pages = Pages()
    key = pages.first(answer("a", 100))["handle"].partition("-")[0]
    with pytest.raises(RefusedError) as caught:
        pages.more(handle.format(key=key))
    assert caught.value.problem.code == "unknown_handle"


def test_the_oldest_answers_are_evicted() -> None:
    pages = Pages()
    first = pages.first(answer("first", 100))["handle"]
    assert pages.more(first)["items"]
    for number in range(MAX_SHEETS):
        pages.first(answer(f"answer {number}", 100))
    with pytest.raises(RefusedError):
        pages.more(first)


def test_equal_answers_have_equal_handles() -> None:
    assert Pages().first(answer("a", 100)) == Pages().first(answer("a", 100))


def test_token_counts_are_upper_estimates() -> None:
    assert tokens("") == 0
    assert tokens("plan") == 1
    assert tokens("tensor-parallel 12345") == 2 + 1 + 2 + 2


def test_the_first_page_of_an_ended_job_is_read_by_the_job_id() -> None:
    pages = Pages({"job-1": answer("kept", 100)}.get)
    page = pages.more("job-1-0")
    assert page["word"] == "kept"
    assert pages.more(page["handle"])["items"]
    for handle in ("job-2-0", "job-1-1"):
        with pytest.raises(RefusedError):
            pages.more(handle)
