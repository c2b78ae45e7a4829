"""Long calls as jobs: concurrent with short calls, cancelled, limited in time, and kept across sessions."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.calls import Caller, answered, refused, serving
from agent.processes import children, new_worker, stopped_worker, wait_until_gone, workers

from strategist import api
from strategist.agent import jobs
from strategist.contract import codec
from strategist.contract.request import Request

REQUEST = {"model": "tiny", "gpus": "1xH100"}


@pytest.fixture(scope="module")
def plan_text() -> str:
    return codec.dumps(api.plan(Request(model="tiny", gpus="1xH100"), top=1).plans[0])


@pytest.fixture(autouse=True)
def plan(workspace: Path, plan_text: str) -> None:
    (workspace / "plan.json").write_text(plan_text)


@pytest.fixture
def narrow(workspace: Path) -> Iterator[Caller]:
    """A server that runs one long call at a time."""
    with serving(workspace, long_calls=1) as made:
        yield made


def stopped_job(dispatcher: Caller) -> tuple[str, int]:
    """A simulation that never ends, and its process."""
    before = workers()
    job = answered(dispatcher, "simulate", plan="plan.json", wait_seconds=0)["job"]
    return job, stopped_worker(before)


def status(dispatcher: Caller, job: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = answered(dispatcher, "job_status", job=job, **arguments)["items"][0]
    return found


def test_short_calls_are_answered_while_long_calls_run_and_wait(narrow: Caller) -> None:
    first, _ = stopped_job(narrow)
    second = answered(narrow, "plan", **REQUEST, wait_seconds=0)["job"]
    assert answered(narrow, "describe_machine")["devices"] > 0
    assert answered(narrow, "read_card", id="FSDP-001")["id"] == "FSDP-001"
    assert [item["state"] for item in answered(narrow, "job_status")["items"]] == ["running", "running"]
    assert status(narrow, second)["progress"] == "waits for other calls"
    answered(narrow, "cancel_job", job=first)
    ended = status(narrow, second, wait_seconds=60)
    assert (ended["state"], ended["problem"]) == ("ended", None)
    assert answered(narrow, "more", handle=ended["handle"])["best"]["fits"]


def test_unknown_names_are_refused_at_once_while_long_calls_run(narrow: Caller) -> None:
    stopped_job(narrow)
    for tool, arguments, words in (
        ("plan", {"model": "no-such-model", "gpus": "8xH100"}, "no-such-model"),
        ("plan", {"model": "tiny", "gpus": "8xH10O"}, "no device is named 'H10O'"),
        ("simulate", {"plan": "0123456789ab"}, "0123456789ab"),
    ):
        assert words in refused(narrow, tool, **arguments, wait_seconds=60)["message"]


def test_a_cancelled_job_leaves_no_process_and_no_files(dispatcher: Caller, workspace: Path) -> None:
    job, worker = stopped_job(dispatcher)
    shown = answered(dispatcher, "cancel_job", job=job)["items"][0]
    assert (shown["state"], shown["problem"]["code"], shown["handle"]) == ("cancelled", "cancelled", "")
    wait_until_gone(worker)
    assert list((workspace / ".strategist" / "temporary").iterdir()) == []
    assert refused(dispatcher, "cancel_job", job=job)["message"] == f"job {job} is cancelled already"
    assert refused(dispatcher, "cancel_job", job="job-99")["code"] == "unknown_job"
    assert refused(dispatcher, "job_status", job="../plan")["code"] == "unknown_job"


def test_a_call_cancelled_by_its_client_is_terminated(dispatcher: Caller) -> None:
    before = workers()
    waiting = dispatcher.portal.start_task_soon(dispatcher.client.call_tool, "simulate", {"plan": "plan.json"})
    worker = stopped_worker(before)
    waiting.cancel()
    wait_until_gone(worker)
    assert answered(dispatcher, "job_status")["items"] == []


def test_a_call_over_its_time_limit_is_terminated(workspace: Path) -> None:
    with serving(workspace, call_minutes=1 / 600) as dispatcher:
        assert refused(dispatcher, "simulate", plan="plan.json")["code"] == "out_of_time"
        while workers():
            pass


def test_a_dead_worker_fails_only_its_own_call(dispatcher: Caller) -> None:
    job, worker = stopped_job(dispatcher)
    os.killpg(worker, signal.SIGKILL)
    ended = status(dispatcher, job, wait_seconds=60)
    assert (ended["state"], ended["problem"]["code"]) == ("ended", "failed")
    assert "died" in ended["problem"]["message"]
    assert answered(dispatcher, "list_cards")["cards"] > 50


def test_a_stopped_server_leaves_no_process(workspace: Path) -> None:
    with serving(workspace) as dispatcher:
        job, worker = stopped_job(dispatcher)
    wait_until_gone(worker)
    with serving(workspace) as dispatcher:
        assert status(dispatcher, job)["state"] == "cancelled"


@pytest.mark.torch
def test_the_ranks_of_a_cancelled_job_are_terminated(dispatcher: Caller) -> None:
    before = workers()
    job = answered(dispatcher, "simulate", plan="plan.json", wait_seconds=0)["job"]
    worker = new_worker(before)
    while not (ranks := list(children(worker))):
        pass
    answered(dispatcher, "cancel_job", job=job)
    wait_until_gone(worker, *ranks)


def test_the_newest_job_answers_are_kept_across_sessions(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 2)
    with serving(workspace) as dispatcher:
        names = [answered(dispatcher, "diagnose", wait_seconds=0)["job"]]
        names += [answered(dispatcher, "explain", plan="plan.json", setting="tp", wait_seconds=0)["job"] for _ in range(2)]
        for name in names[1:]:
            assert status(dispatcher, name, wait_seconds=60)["state"] == "ended"
        direct = answered(dispatcher, "explain", plan="plan.json", setting="tp")
    with serving(workspace) as dispatcher:
        assert [item["job"] for item in answered(dispatcher, "job_status")["items"]] == names[:0:-1]
        handle = status(dispatcher, names[2])["handle"]
        assert answered(dispatcher, "more", handle=handle) == direct


def test_an_invalid_job_record_is_ignored(dispatcher: Caller, workspace: Path) -> None:
    for name, text in (("job-1", "{"), ("job-2", "[]"), ("job-3", '{"job": {"job": "x"}, "server": 1, "answer": null}')):
        (workspace / ".strategist" / "jobs" / f"{name}.json").write_text(text)
        assert refused(dispatcher, "job_status", job=name)["code"] == "unknown_job"
    assert answered(dispatcher, "job_status")["items"] == []
    assert answered(dispatcher, "explain", plan="plan.json", setting="tp", wait_seconds=0)["job"] == "job-4"


def test_a_client_receives_progress_notifications(dispatcher: Caller) -> None:
    received: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, message))

    dispatcher.portal.call(lambda: dispatcher.client.call_tool("plan", REQUEST, progress_callback=on_progress))
    assert received
    assert received == sorted(received, key=lambda item: item[0])
    assert received[-1][1] == "works"


def test_plan_ids_are_known_across_sessions(workspace: Path) -> None:
    with serving(workspace) as dispatcher:
        best = answered(dispatcher, "plan", **REQUEST)["best"]["plan"]
    with serving(workspace) as dispatcher:
        assert answered(dispatcher, "explain", plan=best, setting="tp")["plan"]["plan"] == best
        kept = workspace / ".strategist" / "plans" / f"{best}.json"
        kept.write_text(kept.read_text().replace('"dp_shard": 1', '"dp_shard": 2'))
        assert refused(dispatcher, "explain", plan=best)["code"] == "unknown_plan", "the file's plan has another id than its name"
