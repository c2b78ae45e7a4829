"""Trials started under a grant: real processes, within its trials and minutes."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from agent.calls import Caller, answered, refused, serving
from tuner.studies import tuned

from strategist import api
from strategist.agent.trials import TEXT_SETTINGS, run_settings
from strategist.agent.workspace import Workspace
from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import Training
from strategist.contract.measurement import Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.errors import InputError, StrategistError
from strategist.ledger.ledger import Ledger

TINY: dict[str, Any] = {"model": "tiny", "gpus": "1xcpu", "seq_len": 64, "global_batch": 2, "backend": "native"}


@pytest.fixture
def granted(workspace: Path) -> Iterator[Caller]:
    with serving(workspace, "trials=2,minutes=3.1") as made:
        yield made


def ended(dispatcher: Caller, job: str) -> dict[str, Any]:
    """The status of a job at its end."""
    while True:
        status = answered(dispatcher, "job_status", job=job, wait_seconds=60)
        if status["items"][0]["state"] == "ended":
            return status


def test_no_trial_starts_without_a_grant(dispatcher: Caller) -> None:
    best = answered(dispatcher, "plan", **TINY)["best"]["plan"]
    assert refused(dispatcher, "start_trial", plan=best, minutes=1)["code"] == "not_granted"
    assert refused(dispatcher, "start_tuning", plan=best, study="a", trials=1, minutes=1)["code"] == "not_granted"


def test_the_study_folder_of_a_grant_lies_in_the_workspace(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="outside the workspace"), serving(workspace, "trials=1,minutes=1", str(tmp_path)):
        pass


@pytest.mark.torch
@pytest.mark.full
def test_a_trial_is_measured_and_charged_to_the_grant(granted: Caller) -> None:
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
def test_a_tuning_ends_at_its_time_limit(granted: Caller, workspace: Path) -> None:
    best = answered(granted, "plan", **TINY)["best"]["plan"]
    started = answered(granted, "start_tuning", plan=best, study="short", trials=2, minutes=0.1)
    status = ended(granted, started["job"])
    assert status["items"][0]["exit_code"] in (124, 0)  # ended by force, or no trial was begun in so short a time
    assert status["minutes_left"] < 3.1
    assert refused(granted, "start_trial", plan=best, minutes=3.1)["code"] == "grant_spent"
    assert (workspace / "studies" / "grant.jsonl").read_text().count("\n") == 2


def test_a_running_tuning_is_terminated_with_the_server(workspace: Path) -> None:
    with serving(workspace, "trials=1,minutes=5") as dispatcher:
        best = answered(dispatcher, "plan", **TINY)["best"]["plan"]
        job = answered(dispatcher, "start_tuning", plan=best, study="long", trials=1, minutes=5)["job"]
    with serving(workspace, "trials=1,minutes=5") as dispatcher:
        ended = answered(dispatcher, "job_status", job=job)
        assert ended["items"][0]["state"] == "cancelled"
        assert ended["items"][0]["exit_code"] is not None
        assert 0 < ended["minutes_left"] <= 5


def test_a_cancelled_tuning_returns_its_unused_budget(workspace: Path) -> None:
    with serving(workspace, "trials=3,minutes=5") as dispatcher:
        best = answered(dispatcher, "plan", **TINY)["best"]["plan"]
        job = answered(dispatcher, "start_tuning", plan=best, study="long", trials=3, minutes=5)["job"]
        cancelled = answered(dispatcher, "cancel_job", job=job)
        assert (cancelled["items"][0]["state"], cancelled["running"]) == ("cancelled", "")
        assert cancelled["trials_left"] >= 2
        assert 4 < cancelled["minutes_left"] <= 5


def test_a_tuning_of_an_existing_study_counts_only_its_real_trials(workspace: Path) -> None:
    """The study belongs to another request, so the command refuses the study and runs no trial."""
    with Ledger.open(tuned(workspace / "studies" / "known", 2)) as ledger:
        plan = codec.loads(Plan, ledger.trials()[0].plan_json)
        ledger.enqueue("simulated", codec.dumps(plan), "search")
        claim = ledger.claim("w", 100.0)
        assert claim is not None
        simulated = Measurement(plan_id=plan.id, kind=Kind.SIMULATED, outcome=Outcome.OOM)
        ledger.finish(claim, Outcome.OOM, codec.dumps(simulated))
    with serving(workspace, "trials=2,minutes=3") as dispatcher:
        best = answered(dispatcher, "plan", **TINY)["best"]["plan"]
        job = answered(dispatcher, "start_tuning", plan=best, study="known", trials=1, minutes=1)["job"]
        status = ended(dispatcher, job)
    assert (status["items"][0]["exit_code"], status["trials_left"]) == (2, 2)
    study = api.study(workspace / "studies" / "known")
    assert (study.counted, study.attempts) == (2, 2)


@pytest.fixture
def agent_workspace(workspace: Path) -> Workspace:
    return Workspace.at(workspace)


def test_run_settings_resolve_paths_within_the_workspace(agent_workspace: Workspace) -> None:
    found = run_settings(agent_workspace, {"steps": 20, "data": "tokens.bin", "learning_rate_schedule": "constant"})
    assert found == TrialSettings(steps=20, data=str(agent_workspace.root / "tokens.bin"))
    training = run_settings(agent_workspace, {"total_steps": 100, "save": "out", "learning_rate_schedule": "cosine"})
    assert (training.save, training.wall_timeout_seconds) == (str(agent_workspace.root / "out"), None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"steps": "ten"}, "settings.steps: int is needed"),
        ({"data": "../tokens.bin"}, "outside the workspace"),
        ({"save": "/tmp/out", "total_steps": 1}, "outside the workspace"),
        ({"resume": "../out"}, "outside the workspace"),
        ({"resume": "nowhere"}, "is not a folder"),
        ({"keep": 0}, "must be at least 1"),
    ],
)
def test_invalid_run_settings_are_refused(agent_workspace: Workspace, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(StrategistError, match=words):
        run_settings(agent_workspace, settings)


def test_every_text_setting_is_a_known_word_or_a_checked_path(agent_workspace: Workspace) -> None:
    """An unchecked path would let an agent leave the workspace."""
    with pytest.raises(StrategistError, match="sends figures to another machine"):
        run_settings(agent_workspace, {"wandb": "project"})
    for field in fields(TrialSettings):
        if field.name == "wandb":
            continue
        if field.type in (str, "str") and field.name not in TEXT_SETTINGS:
            with pytest.raises(StrategistError, match="outside the workspace"):
                run_settings(agent_workspace, {field.name: "../outside", "total_steps": 1})


def test_a_checkpoint_cannot_name_data_outside_the_workspace(agent_workspace: Workspace, tmp_path: Path) -> None:
    step = agent_workspace.root / "out" / checkpoint.name_of(1)
    step.mkdir(parents=True)
    training = Training(
        step=1, samples=2, settings=TrialSettings(data=str(tmp_path / "tokens.bin"), total_steps=1), model=api.model("tiny").shape,
        workload=Workload(seq_len=64, global_batch=2), plan_id="", ranks=1, files={},
    )  # fmt: skip
    codec.save(training, step / checkpoint.DESCRIPTION)
    with pytest.raises(StrategistError, match="outside the workspace"):
        run_settings(agent_workspace, {"resume": "out"})
    inside = replace(training, settings=replace(training.settings, seed=7, data=str(agent_workspace.root / "tokens.bin")))
    codec.save(inside, step / checkpoint.DESCRIPTION)
    assert run_settings(agent_workspace, {"resume": "out"}).seed == 7


@pytest.mark.torch
@pytest.mark.full
def test_a_training_is_resumed_with_its_settings(workspace: Path) -> None:
    with serving(workspace, "trials=2,minutes=6") as dispatcher:
        best = answered(dispatcher, "plan", **TINY)["best"]["plan"]
        first = answered(dispatcher, "start_trial", plan=best, minutes=3, settings={"total_steps": 4, "save": "saved", "seed": 3})
        job, _ = ended(dispatcher, first["job"])["items"]
        assert job["exit_code"] == 0, job["last_lines"]
        again = {"total_steps": 8, "resume": "saved", "save": "saved"}
        second = answered(dispatcher, "start_trial", plan=best, minutes=3, settings=again)
        job, _ = ended(dispatcher, second["job"])["items"]
        assert job["exit_code"] == 0, job["last_lines"]
    saved = checkpoint.read(checkpoint.find(workspace / "saved"))
    assert (saved.step, saved.settings.seed) == (8, 3)
