"""Budget of trials and minutes: agents never start more than the grant."""

import json
from pathlib import Path

import pytest

from strategist.agent.grant import SPENDING_FILE, Budget, Grant
from strategist.agent.problem import RefusedError
from strategist.errors import FileError, InputError


def budget(folder: Path, text: str = "trials=3,minutes=30") -> Budget:
    return Budget(Grant.parsed(text, folder))


def test_a_grant_is_parsed_as_trials_and_minutes(tmp_path: Path) -> None:
    assert Grant.parsed(" minutes=7.5 , trials=3", tmp_path) == Grant(trials=3, minutes=7.5, folder=tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "trials=3", "trials=0,minutes=3", "trials=1.5,minutes=3", "trials=3,minutes=nan",
     "trials=3,minutes=inf", "trials=3,minutes=-1", "trials=3,minutes=30,more=1", "trials=3,trials=4,minutes=3",
     "trials=٣,minutes=9"],
)  # fmt: skip
def test_an_invalid_grant_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="trials=3,minutes=30"):
        Grant.parsed(text, tmp_path)


def test_a_job_reserves_its_trials_and_minutes_before_it_starts(tmp_path: Path) -> None:
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


def test_unused_trials_and_minutes_return_to_the_budget(tmp_path: Path) -> None:
    made = budget(tmp_path)
    made.reserve("job-1", 3, 30)
    made.record_spending("job-1", 1, 60)
    assert (made.trials_left, made.minutes_left) == (2, 29)


def test_a_job_returns_at_most_its_reservation(tmp_path: Path) -> None:
    made = budget(tmp_path)
    made.reserve("job-1", 1, 1)
    made.record_spending("job-1", 10**9, 10**9)
    assert (made.trials_left, made.minutes_left) == (2, 29)


def test_a_restarted_server_continues_with_the_remaining_budget(tmp_path: Path) -> None:
    first = budget(tmp_path)
    first.reserve("job-1", 1, 10)
    first.record_spending("job-1", 1, 120)
    first.reserve("job-2", 1, 10)  # and the server is killed
    again = budget(tmp_path)
    assert (again.trials_left, again.minutes_left, again.last) == (1, 18, 2)
    assert budget(tmp_path, "trials=10,minutes=30").trials_left == 8


def test_an_invalid_spending_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / SPENDING_FILE).write_text(json.dumps({"job": "job-1"}))
    with pytest.raises(FileError, match="not a book of a grant"):
        budget(tmp_path)
