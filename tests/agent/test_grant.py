"""What agents may start: never more than was granted."""

import json
from pathlib import Path

import pytest

from strategist.agent.grant import SPENDING_FILE, Budget, Grant
from strategist.agent.problem import RefusedError
from strategist.errors import FileError, InputError


def budget(folder: Path, text: str = "trials=3,minutes=30") -> Budget:
    return Budget(Grant.parsed(text, folder))


def test_a_grant_is_trials_and_minutes(tmp_path: Path) -> None:
    assert Grant.parsed(" minutes=7.5 , trials=3", tmp_path) == Grant(trials=3, minutes=7.5, folder=tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "trials=3", "trials=0,minutes=3", "trials=1.5,minutes=3", "trials=3,minutes=nan",
     "trials=3,minutes=inf", "trials=3,minutes=-1", "trials=3,minutes=30,more=1", "trials=3,trials=4,minutes=3",
     "trials=٣,minutes=9"],
)  # fmt: skip
def test_another_text_is_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="trials=3,minutes=30"):
        Grant.parsed(text, tmp_path)


def test_what_a_job_may_take_is_gone_before_it_starts(tmp_path: Path) -> None:
    made = budget(tmp_path)
    made.reserve("job-1", 2, 20)
    assert (made.trials_left, made.minutes_left) == (1, 10)
    with pytest.raises(RefusedError) as caught:
        made.reserve("job-2", 2, 1)
    assert caught.value.problem.code == "grant_spent"
    with pytest.raises(RefusedError):
        made.reserve("job-2", 1, 10.01)
    made.reserve("job-2", 1, 10)
    assert (made.trials_left, made.minutes_left) == (0, 0)


def test_what_a_job_did_not_take_comes_back(tmp_path: Path) -> None:
    made = budget(tmp_path)
    made.reserve("job-1", 3, 30)
    made.record_spending("job-1", 1, 60)
    assert (made.trials_left, made.minutes_left) == (2, 29)


def test_a_job_gives_back_no_more_than_it_was_given(tmp_path: Path) -> None:
    made = budget(tmp_path)
    made.reserve("job-1", 1, 1)
    made.record_spending("job-1", 10**9, 10**9)
    assert (made.trials_left, made.minutes_left) == (2, 29)


def test_who_starts_the_server_again_gets_what_is_left(tmp_path: Path) -> None:
    first = budget(tmp_path)
    first.reserve("job-1", 1, 10)
    first.record_spending("job-1", 1, 120)
    first.reserve("job-2", 1, 10)  # and the server is killed
    again = budget(tmp_path)
    assert (again.trials_left, again.minutes_left, again.last) == (1, 18, 2)
    assert budget(tmp_path, "trials=10,minutes=30").trials_left == 8


def test_a_book_that_is_none_grants_nothing(tmp_path: Path) -> None:
    (tmp_path / SPENDING_FILE).write_text(json.dumps({"job": "job-1"}))
    with pytest.raises(FileError, match="not a book of a grant"):
        budget(tmp_path)
