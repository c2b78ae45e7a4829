"""Jobs: calls that take longer than a client waits, and trials and tunings under a grant. Jobs can be cancelled; their results
are kept in the workspace across sessions.
"""

import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from strategist.agent.pagination import Answer
from strategist.agent.problem import Problem, RefusedError, problem_of
from strategist.agent.workers import alive
from strategist.agent.workspace import Workspace
from strategist.contract import codec
from strategist.errors import StrategistError
from strategist.frozen import frozen

MAX_JOBS = 64
"""Maximum number of jobs kept in a workspace; the oldest are deleted."""

JOBS_FOLDER = "jobs"
RUNNING, ENDED, CANCELLED, LOST = "running", "ended", "cancelled", "lost"
OnProgress = Callable[[float, float | None, str], Awaitable[None]]
"""Called with the elapsed seconds of a call, its total seconds if known, and its progress in words."""


@frozen
class ShownJob:
    """A job.

    state: running, ended, cancelled, or lost if its server is gone.
    progress: in words. seconds: time since its start, or its duration if it has ended.
    handle: handle of its answer, for the tool more; empty if there is no answer.
    problem: why it failed.
    folder, exit_code: of a trial or tuning; exit codes: 0 success, 1 a trial failed, 2 wrong input, 124 its minutes are over.
    last_lines: last lines of its log.
    """

    job: str
    tool: str
    state: str
    progress: str
    seconds: float
    handle: str
    problem: Problem | None
    folder: str
    exit_code: int | None
    last_lines: tuple[str, ...]


@dataclass(kw_only=True, eq=False)
class Job:
    """A call that runs in this server; it has a name once clients see it as a job."""

    tool: str
    name: str = ""
    folder: str = ""
    progress: str = ""
    state: str = RUNNING
    exit_code: int | None = None
    log: Path | None = None
    answer: Answer | None = None
    problem: Problem | None = None
    on_progress: OnProgress | None = None
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    over: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def seconds(self) -> float:
        return round((self.ended or time.monotonic()) - self.began, 2)

    async def report(self, share: float, words: str) -> None:
        """Takes how far the work is, and passes it on to the client that waits."""
        self.progress = words or self.progress
        if self.on_progress is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client is gone, the work goes on
                await self.on_progress(self.seconds, self.seconds / share if share else None, self.progress)

    def shown(self) -> ShownJob:
        """The job as agents see it."""
        return ShownJob(
            job=self.name, tool=self.tool, state=self.state, progress=self.progress, seconds=self.seconds,
            handle=f"{self.name}-0" if self.answer else "", problem=self.problem, folder=self.folder, exit_code=self.exit_code,
            last_lines=() if self.log is None else last_lines(self.log),
        )  # fmt: skip


Work = Callable[[Job], Awaitable[Answer | None]]


class Jobs:
    """The jobs of a workspace: those of this server, and records of all."""

    def __init__(self, workspace: Workspace, group: TaskGroup) -> None:
        self._folder = workspace.server_folder(JOBS_FOLDER)
        self._group = group
        self.running: dict[str, Job] = {}

    def start(self, job: Job, work: Work, seconds: float | None = None) -> None:
        """Starts the work of a job; it is ended after ``seconds``."""
        self._group.start_soon(self._run, job, work, seconds)

    async def _run(self, job: Job, work: Work, seconds: float | None) -> None:
        job.state = CANCELLED  # where the server ends, nothing below comes to say otherwise
        try:
            with job.scope, anyio.move_on_after(seconds) as limit:
                job.state = RUNNING
                job.answer = await _outcome(job, work)
                job.state = ENDED
            if limit.cancelled_caught:
                job.state = ENDED
                job.problem = Problem(
                    code="out_of_time", message=f"it took over {seconds:g} s", next="ask for less, or ask for a longer limit"
                )
            elif job.scope.cancelled_caught:
                job.state = CANCELLED
                job.problem = Problem(code="cancelled", message="it was cancelled", next="start it again if it is wanted")
        finally:
            job.state = CANCELLED if job.state == RUNNING else job.state
            job.ended = time.monotonic()
            if self.running.pop(job.name, None):
                self._save(job)
            job.over.set()

    @contextmanager
    def named(self, after: int = 0) -> Iterator[str]:
        """Reserves a new name with a number above ``after``, unique in the workspace even if another server reserves one at the
        same time. It is released if the job is not created.
        """
        number = max([after, *map(_number, self._folder.glob("job-*.json"))]) + 1
        while not _created(path := self._folder / f"job-{number}.json"):
            number += 1
        try:
            yield path.stem
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def keep(self, job: Job, name: str) -> None:
        """Turns a call into a job: gives it a name, and a record that outlives this server."""
        job.name = name
        self.running[name] = job
        self._save(job)

    def find(self, name: str) -> Job:
        """A job that runs in this server.

        Raises:
            RefusedError: no such job runs.
        """
        if name in self.running:
            return self.running[name]
        record = self.record(name)
        law = "runs in another server" if record.state == RUNNING else f"is {record.state} already"
        raise RefusedError("unknown_job", f"job {name} {law}", "call job_status without a job, which lists all")

    def record(self, name: str) -> ShownJob:
        """A job, running or not.

        Raises:
            RefusedError: there is no such job.
        """
        if name in self.running:
            return self.running[name].shown()
        if (found := self._read(name)) is None:
            raise RefusedError("unknown_job", f"there is no job {name}", "call job_status without a job, which lists all")
        return found

    def all(self) -> tuple[ShownJob, ...]:
        """All jobs, newest first."""
        names = [path.stem for path in sorted(self._folder.glob("job-*.json"), key=_number, reverse=True)]
        jobs = (self.running[name].shown() if name in self.running else self._read(name) for name in names)
        return tuple(job for job in jobs if job is not None)

    def answer(self, name: str) -> Answer | None:
        """Answer of an ended job; None without an answer."""
        try:
            head, items = json.loads(self._lines(name)[1])
        except (OSError, ValueError, TypeError, IndexError):
            return None
        return dict(head), list(items)

    def _save(self, job: Job) -> None:
        path = self._folder / f"{job.name}.json"
        draft = path.with_suffix(".draft")
        record = {"server": os.getpid(), "job": codec.encode(job.shown())}
        draft.write_text(f"{json.dumps(record)}\n{json.dumps(job.answer)}\n", encoding="utf-8")
        draft.replace(path)
        for oldest in sorted(self._folder.glob("job-*.json"), key=_number)[:-MAX_JOBS]:
            if oldest.stem not in self.running:
                oldest.unlink(missing_ok=True)

    def _read(self, name: str) -> ShownJob | None:
        """A job's record without its answer; None if the file is not a valid record."""
        try:
            record = json.loads(self._lines(name, 1)[0])
            shown: ShownJob = codec.decode(ShownJob, record["job"], "job")
            server = int(record["server"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, StrategistError):
            return None
        gone = shown.state == RUNNING and (server == os.getpid() or not alive(server))
        return replace(shown, state=LOST) if gone else shown

    def _lines(self, name: str, count: int = 2) -> list[str]:
        """The first lines of a record's file: the job, and its answer, which may be long. Empty for what is no job's name.

        Raises:
            OSError, ValueError: there is no such file, or it is not text.
        """
        if not re.fullmatch("job-[0-9]{1,9}", name):
            return []
        with (self._folder / f"{name}.json").open(encoding="utf-8") as file:
            return list(islice(file, count))


async def _outcome(job: Job, work: Work) -> Answer | None:
    """The answer of the work; a problem is put into the job."""
    try:
        return await work(job)
    except StrategistError as error:
        job.problem = problem_of(error)
    except Exception as error:  # a defect is the server's, and other jobs go on
        job.problem = Problem(code="failed", message=f"{type(error).__name__}: {error}", next="report it, with the log")
    return None


def last_lines(log: Path, most: int = 10) -> tuple[str, ...]:
    """The end of a job's log."""
    try:
        text = log.read_bytes()[-4000:].decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-most:])


def _created(path: Path) -> bool:
    """Creates an empty file; False if it exists already."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _number(path: Path) -> int:
    """Number in the name of a record; 0 if there is none."""
    number = path.stem.removeprefix("job-")
    return int(number) if number.isascii() and number.isdigit() else 0
