"""Dispatcher: validates, runs, paginates and logs tool calls; workers or the server execute them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from strategist.agent import resources
from strategist.agent.audit import Audit
from strategist.agent.grant import Budget
from strategist.agent.jobs import Job, Jobs, OnProgress
from strategist.agent.pagination import Answer, PagedAnswer, Pages, StartedJob
from strategist.agent.problem import RefusedError, problem_of
from strategist.agent.tool import Tool, encoded
from strategist.agent.workers import Workers
from strategist.agent.workspace import Workspace
from strategist.errors import StrategistError


class Dispatcher:
    """State shared by all clients of a server.

    call_seconds: time limit of a call.
    """

    def __init__(
        self,
        *,
        workspace: Workspace,
        workers: Workers,
        jobs: Jobs,
        budget: Budget | None,
        audit: Audit,
        tools: Sequence[Tool],
        call_seconds: float,
    ) -> None:
        self.workspace, self.workers, self.jobs, self.audit = workspace, workers, jobs, audit
        self.tools = {tool.name: tool for tool in tools}
        self.pages = Pages(jobs.answer)
        self.call_seconds = call_seconds
        self._budget = budget

    @property
    def budget(self) -> Budget:
        """The budget of the grant.

        Raises:
            RefusedError: there is no grant.
        """
        if self._budget is None:
            way = "ask the person who runs the server to start it with --grant trials=N,minutes=M --study DIR"
            raise RefusedError("not_granted", "this server was started without a grant", way)
        return self._budget

    @property
    def left(self) -> tuple[int, float]:
        """Remaining trials and minutes of the grant; zero without a grant."""
        return (0, 0.0) if self._budget is None else (self._budget.trials_left, max(self._budget.minutes_left, 0.0))

    async def call(self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> dict[str, Any]:
        """The first page of what a tool answers; of a long call that continues as a job, a :class:`StartedJob`.

        Raises:
            RefusedError: the call is refused, or has failed.
            FileError: it cannot be written into the log; nothing was done.
        """
        async with self.logged_call(name, arguments):
            if (tool := self.tools.get(name)) is None:
                raise RefusedError("unknown_tool", f"there is no tool {name}", f"call one of {', '.join(self.tools)}")
            parsed = tool.parsed(arguments)
            if tool.of_server:
                answer = await tool.function(self, parsed, on_progress)
                return answer if isinstance(answer, dict) else self.pages.first(encoded(answer))
            job = Job(tool=name, progress="waits for other calls", on_progress=on_progress)
            self.jobs.start(job, lambda job: self.work(name, arguments, job, long=tool.long), self.call_seconds)
            return await self._awaited(job, parsed.wait_seconds if tool.long else None)

    async def read(self, resource: str, name: str) -> str:
        """The text of a resource.

        Raises:
            RefusedError: there is none, or it cannot be read.
        """
        with anyio.fail_after(self.call_seconds):
            text: str = await self.workers.run(resources.READ, {"resource": resource, "name": name}, **self._session_state())
        return text

    async def work(
        self, function: str, arguments: dict[str, Any], job: Job | None = None, *, long: bool = False, name: str = ""
    ) -> Answer:
        """Calls a function in a worker and returns its answer; ``name`` is the job that the call prepares, empty for none."""
        on_progress = None if job is None else job.report
        head, items = await self.workers.run(function, arguments, long=long, on_progress=on_progress, **self._session_state(name))
        return head, items

    def _session_state(self, job: str = "") -> dict[str, Any]:
        """State of this session that workers need."""
        trials, minutes = self.left
        studies = None if self._budget is None else str(self._budget.grant.folder)
        return {"studies": studies, "trials": trials, "minutes": minutes, "job": job}

    async def _awaited(self, job: Job, seconds: float | None) -> dict[str, Any]:
        """The answer of a job; after ``seconds`` the job continues under a name, and a :class:`StartedJob` is returned."""
        try:
            with anyio.move_on_after(seconds):
                await job.over.wait()
        except BaseException:  # the client has cancelled the call, or is gone
            job.scope.cancel()
            raise
        job.on_progress = None
        if not job.over.is_set():
            with self.jobs.named() as name:
                self.jobs.keep(job, name)
            started = StartedJob(job=job.name, tool=job.tool, progress=job.progress, seconds=job.seconds)
            return self.pages.first(encoded(PagedAnswer(head=started)))
        if job.problem is not None:
            raise RefusedError(job.problem.code, job.problem.message, job.problem.next)
        assert job.answer is not None
        return self.pages.first(job.answer)

    @asynccontextmanager
    async def logged_call(self, name: str, arguments: Any) -> AsyncIterator[None]:
        """Context of a call: logs its begin and its end, and converts every error into a RefusedError."""
        number, code = self.audit.begins(name, arguments), "cancelled"
        try:
            yield
            code = "ok"
        except StrategistError as error:
            problem = problem_of(error)
            code = problem.code
            raise RefusedError(problem.code, problem.message, problem.next) from error
        except Exception as error:  # a defect is the server's, and the next call may well succeed
            code = "failed"
            raise RefusedError(code, f"{type(error).__name__}: {error}", "report it, with the log") from error
        finally:
            self.audit.ends(number, code)
