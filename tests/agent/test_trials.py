"""What is started under a grant: real processes, within its trials and minutes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.calls import answered, refused
from tuner.studies import tuned

from strategist.agent.desk import Desk
from strategist.agent.open import opened
from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.ledger.ledger import Ledger

TINY: dict[str, Any] = {"model": "tiny", "gpus": "1xcpu", "seq_len": 64, "global_batch": 2, "backend": "native"}


@pytest.fixture
def granted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with opened(str(workspace), "trials=2,minutes=3.1") as made:
        yield made


def ended(desk: Desk, job: str) -> dict[str, Any]:
    """The status of a job at its end."""
    while True:
        status = answered(desk, "trial_status", job=job, wait_seconds=60)
        if status["items"][0]["state"] == "ended":
            return status


def test_without_a_grant_nothing_starts(desk: Desk) -> None:
    best = answered(desk, "plan", **TINY)["best"]["plan"]
    assert refused(desk, "start_trial", plan=best, minutes=1)["code"] == "not_granted"
    assert refused(desk, "start_tuning", plan=best, study="a", trials=1, minutes=1)["code"] == "not_granted"


def test_a_grant_is_for_a_folder_inside(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="outside the workspace"), opened(str(workspace), "trials=1,minutes=1", str(tmp_path)):
        pass


@pytest.mark.torch
@pytest.mark.full
def test_a_trial_runs_is_measured_and_spends_what_it_took(granted: Desk) -> None:
    best = answered(granted, "plan", **TINY)["best"]["plan"]
    started = answered(granted, "start_trial", plan=best, minutes=3)
    assert (started["trials_left"], started["folder"]) == (1, "studies/trial-1")
    assert refused(granted, "start_trial", plan=best, minutes=0.1)["code"] == "busy"
    status = ended(granted, started["job"])
    job, trial = status["items"]
    assert (job["exit_code"], trial["outcome"]) == (0, "ok"), job["last_lines"]
    assert trial["step_seconds"] > 0
    assert (status["trials_left"], status["running"]) == (1, "")
    assert 0 < status["minutes_left"] < 3.1
    assert refused(granted, "start_tuning", plan=best, study="a", trials=2, minutes=0.1)["code"] == "grant_spent"


@pytest.mark.torch
def test_a_tuning_ends_when_its_minutes_are_over(granted: Desk, workspace: Path) -> None:
    best = answered(granted, "plan", **TINY)["best"]["plan"]
    started = answered(granted, "start_tuning", plan=best, study="short", trials=2, minutes=0.1)
    status = ended(granted, started["job"])
    assert status["items"][0]["exit_code"] in (124, 0)  # ended by force, or no trial was begun in so short a time
    assert status["minutes_left"] < 3.1
    assert refused(granted, "start_trial", plan=best, minutes=3.1)["code"] == "grant_spent"
    assert (workspace / "studies" / "grant.jsonl").read_text().count("\n") == 2


def test_a_tuning_goes_on_after_the_trials_that_ran_and_simulated_ones_are_none(granted: Desk, workspace: Path) -> None:
    """The study is of another request, so the command refuses it and takes no trial."""
    best = answered(granted, "plan", **TINY)["best"]["plan"]
    with Ledger.open(tuned(workspace / "studies" / "known", 2)) as ledger:
        plan = codec.loads(Plan, ledger.trials()[0].plan_json)
        ledger.enqueue("simulated", codec.dumps(plan), "search")
        claim = ledger.claim("w", 100.0)
        assert claim is not None
        simulated = Measurement(plan_id=plan.id, kind=Kind.SIMULATED, outcome=Outcome.OOM)
        ledger.finish(claim, Outcome.OOM, codec.dumps(simulated))
    started = answered(granted, "start_tuning", plan=best, study="known", trials=1, minutes=1)
    command = granted.room.jobs.all[0].process.args
    assert command[command.index("--trials") + 1] == "3"
    status = ended(granted, started["job"])
    assert (status["items"][0]["exit_code"], status["trials_left"]) == (2, 2)


def test_a_job_that_runs_is_ended_with_the_server(workspace: Path) -> None:
    with opened(str(workspace), "trials=1,minutes=5") as desk:
        best = answered(desk, "plan", **TINY)["best"]["plan"]
        answered(desk, "start_tuning", plan=best, study="long", trials=1, minutes=5)
        job = desk.room.jobs.running
        assert job is not None
    assert job.over.is_set()
    assert job.exit_code is not None
