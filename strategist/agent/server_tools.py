"""Tools of the server itself: the next page, and jobs, some of which it starts under a grant."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Annotated, Any, Never

import anyio
from anyio.abc import Process

from strategist.agent.dispatcher import Dispatcher
from strategist.agent.jobs import Job, OnProgress, ShownJob
from strategist.agent.pagination import PagedAnswer
from strategist.agent.plan_summary import rounded
from strategist.agent.problem import RefusedError
from strategist.agent.schema import Arguments, number, text
from strategist.agent.tool import Tool, tool
from strategist.agent.trials import TRIAL, TUNING, Prepared, ShownTrial, TrialArguments, TuningArguments
from strategist.contract import codec
from strategist.frozen import frozen

GRACE_SECONDS = 30
"""Time for a trial or tuning to end and release its claim before it is killed."""

PROGRESS_SECONDS = 2.0


@frozen
class GrantedAnswer:
    """A started trial or tuning, and the trials and minutes that the grant has left."""

    job: str
    tool: str
    folder: str
    trials: int
    minutes: float
    trials_left: int
    minutes_left: float


@frozen
class StatusAnswer:
    """Trials and minutes that the grant has left, and the running trial or tuning. Items: the jobs, or one job with its trials."""

    trials_left: int
    minutes_left: float
    running: str


class HandleArguments(Arguments):
    handle: Annotated[str, text("Handle of an earlier answer or of a job.", "1f0c9a77d2-6")]


class StatusArguments(Arguments):
    job: Annotated[str, text("Name of a job; default: all.", "job-1")] = ""
    wait_seconds: Annotated[float, number("Seconds to wait for the end of the job.", 30, most=60)] = 0.0


class CancelArguments(Arguments):
    job: Annotated[str, text("Name of a job.", "job-1")]


@tool(
    {"plan": "58698c070e9c", "minutes": 5},
    {"plan": "58698c070e9c", "minutes": 30, "settings": {"steps": 20, "data": "tokens.bin"}},
    of_server=True,
    changes=True,
)
async def start_trial(
    dispatcher: Dispatcher, arguments: TrialArguments, on_progress: OnProgress | None
) -> PagedAnswer[GrantedAnswer, Never]:
    """Runs a plan once on this machine, within the grant: as a trial, or with settings total_steps and save as a training. Returns
    a job; wait for it with job_status."""
    return await _start(dispatcher, TRIAL, "prepare_trial", arguments, 1, arguments.minutes)


@tool({"plan": "58698c070e9c", "study": "first", "trials": 2, "minutes": 5}, of_server=True, changes=True)
async def start_tuning(
    dispatcher: Dispatcher, arguments: TuningArguments, on_progress: OnProgress | None
) -> PagedAnswer[GrantedAnswer, Never]:
    """Tunes the request of a plan by trials on this machine, within the grant; each trial improves the next choice. Returns a job;
    wait for it with job_status."""
    return await _start(dispatcher, TUNING, "prepare_tuning", arguments, arguments.trials, arguments.minutes)


@tool({}, {"job": "job-1", "wait_seconds": 30}, of_server=True)
async def job_status(
    dispatcher: Dispatcher, arguments: StatusArguments, on_progress: OnProgress | None
) -> PagedAnswer[StatusAnswer, ShownJob | ShownTrial]:
    """Shows what the grant has left, and all jobs in the workspace, or one job with its trials. For the answer of an ended job,
    call more with its handle."""
    if not arguments.job:
        return PagedAnswer(head=_status(dispatcher), items=dispatcher.jobs.all())
    if (job := dispatcher.jobs.running.get(arguments.job)) is not None:
        job.on_progress = on_progress
        with anyio.move_on_after(arguments.wait_seconds):
            await job.over.wait()
        job.on_progress = None
    return await _shown(dispatcher, arguments.job)


@tool({"job": "job-1"}, of_server=True, changes=True)
async def cancel_job(
    dispatcher: Dispatcher, arguments: CancelArguments, on_progress: OnProgress | None
) -> PagedAnswer[StatusAnswer, ShownJob | ShownTrial]:
    """Ends a running job. A trial or tuning gets 30 seconds to exit by itself; the unused part of its grant is refunded."""
    job = dispatcher.jobs.find(arguments.job)
    job.scope.cancel()
    await job.over.wait()
    return await _shown(dispatcher, job.name)


@tool({"handle": "1f0c9a77d2-6"}, of_server=True)
async def more(dispatcher: Dispatcher, arguments: HandleArguments, on_progress: OnProgress | None) -> dict[str, Any]:
    """The next page of an answer that has a handle, or the first page of a job's answer."""
    return dispatcher.pages.more(arguments.handle)


TOOLS: tuple[Tool, ...] = (start_trial, start_tuning, job_status, cancel_job, more)
"""Tools in the order in which they are listed."""


def _status(dispatcher: Dispatcher) -> StatusAnswer:
    (trials, minutes), running = dispatcher.left, _granted(dispatcher)
    return StatusAnswer(trials_left=trials, minutes_left=rounded(minutes), running=running.name if running else "")


def _granted(dispatcher: Dispatcher) -> Job | None:
    """The running trial or tuning."""
    return next((job for job in dispatcher.jobs.running.values() if job.tool in (TRIAL, TUNING)), None)


async def _shown(dispatcher: Dispatcher, name: str) -> PagedAnswer[StatusAnswer, ShownJob | ShownTrial]:
    job = dispatcher.jobs.record(name)
    trials: list[Any] = []
    if job.tool in (TRIAL, TUNING):
        _, trials = await dispatcher.work("list_trials", {"kind": job.tool, "folder": job.folder})
    return PagedAnswer(head=_status(dispatcher), items=(job, *(codec.decode(ShownTrial, trial, "trial") for trial in trials)))


async def _start(
    dispatcher: Dispatcher, kind: str, prepare: str, arguments: Arguments, trials: int, minutes: float
) -> PagedAnswer[GrantedAnswer, Never]:
    """Starts ``strategist`` with the command that a worker prepared, limited to this number of trials and minutes.

    Raises:
        RefusedError: nothing was granted, too little is left, or a trial or tuning runs.
    """
    budget = dispatcher.budget
    _refuse_second(dispatcher)
    budget.check(trials, minutes)
    with dispatcher.jobs.named(budget.last) as name:
        head, _ = await dispatcher.work(prepare, arguments.model_dump(exclude_unset=True), name=name)
        prepared: Prepared = codec.decode(Prepared, head, "job")
        _refuse_second(dispatcher)  # another client may have been faster
        budget.reserve(name, trials, minutes)
    folder = Path(prepared.folder)
    job = Job(tool=kind, folder=dispatcher.workspace.show(folder), log=folder / f"{name}.log", progress="starts")
    dispatcher.jobs.keep(job, name)
    dispatcher.jobs.start(job, partial(_run, dispatcher, prepared, minutes))
    left = dispatcher.left
    return PagedAnswer(
        head=GrantedAnswer(
            job=name, tool=kind, folder=job.folder, trials=trials, minutes=minutes, trials_left=left[0],
            minutes_left=rounded(left[1]),
        )
    )  # fmt: skip


def _refuse_second(dispatcher: Dispatcher) -> None:
    if (running := _granted(dispatcher)) is not None:
        raise RefusedError("busy", f"job {running.name} is running", "call job_status until it has ended, or cancel_job")


async def _run(dispatcher: Dispatcher, prepared: Prepared, minutes: float, job: Job) -> None:
    """Runs the process of a job to its end, and records how much of the grant it used, also after an error."""
    began, trials = time.monotonic(), 0
    try:
        process = await _open(prepared, minutes, job)
        try:
            while process.returncode is None:
                with anyio.move_on_after(PROGRESS_SECONDS):
                    await process.wait()
                await job.report(job.seconds / (minutes * 60), f"{job.seconds / 60:.1f} of {minutes:g} minutes")
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
                job.exit_code = process.returncode
                trials = await _trials_run(dispatcher, job, prepared.attempts)
    finally:
        dispatcher.budget.record_spending(job.name, trials, time.monotonic() - began)


async def _open(prepared: Prepared, minutes: float, job: Job) -> Process:
    command = [
        "timeout", "--signal=TERM", f"--kill-after={GRACE_SECONDS}", f"{minutes * 60:.3f}",
        sys.executable, "-P", "-m", "strategist.cli.main", *prepared.command,
    ]  # fmt: skip
    environment = {**os.environ, "STRATEGIST_CONFIG": "", "HF_HUB_OFFLINE": "1"}  # agents write into folders
    assert job.log is not None
    with job.log.open("wb") as log:
        return await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=prepared.folder, env=environment,
            start_new_session=True,
        )  # fmt: skip


async def _end(process: Process) -> None:
    """Ends a process that still runs: it may tidy up first."""
    if process.returncode is not None:
        return
    process.terminate()  # timeout passes it on
    with anyio.move_on_after(GRACE_SECONDS + 5):
        await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        await process.wait()


async def _trials_run(dispatcher: Dispatcher, job: Job, before: int) -> int:
    """Number of trials that a job has run; more than its grant if its folder is unreadable, so that none is refunded."""
    try:
        head, _ = await dispatcher.work("list_trials", {"kind": job.tool, "folder": job.folder})
    except RefusedError:
        return sys.maxsize
    return int(head["attempts"]) - before
