"""Opens the dispatcher of an agent session and cleans up after it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from strategist import api
from strategist.agent import catalog, server_tools
from strategist.agent.audit import Audit
from strategist.agent.dispatcher import Dispatcher
from strategist.agent.grant import Budget, Grant
from strategist.agent.jobs import Jobs
from strategist.agent.workers import Workers
from strategist.agent.workspace import Workspace
from strategist.errors import InputError

LOG, STUDIES = "audit.jsonl", "studies"
CALL_MINUTES = 30.0
LONG_CALLS = 4
"""Least number of concurrent long calls, so that plans do not wait for simulations."""


@asynccontextmanager
async def open_session(
    workspace: str,
    grant: str | None = None,
    study: str | None = None,
    audit: str | None = None,
    *,
    long_calls: int | None = None,
    call_minutes: float = CALL_MINUTES,
) -> AsyncIterator[Dispatcher]:
    """A dispatcher for a workspace, with its grant; jobs that still run at the end are ended.

    Args:
        long_calls: how many work at a time; four, or as many as there are cores, if none is given.
        call_minutes: after which a call is ended.

    Raises:
        InputError, FileError: a folder is none, or the grant says nothing.
    """
    opened = Workspace.at(workspace)
    budget = None if grant is None else _budget(opened, grant, study)
    workers = Workers(opened, long_calls or max(LONG_CALLS, api.cores()))
    log = Audit(Path(audit) if audit else opened.server_folder() / LOG)
    async with anyio.create_task_group() as group:
        yield Dispatcher(
            workspace=opened, workers=workers, jobs=Jobs(opened, group), budget=budget, audit=log,
            tools=(*catalog.TOOLS, *server_tools.TOOLS), call_seconds=call_minutes * 60,
        )  # fmt: skip
        group.cancel_scope.cancel()


def _budget(workspace: Workspace, grant: str, study: str | None) -> Budget:
    folder = (Path(study) if study else workspace.root / STUDIES).resolve()
    if not folder.is_relative_to(workspace.root):
        raise InputError(f"--study {study}", "lies outside the workspace", "name a folder inside it")
    return Budget(Grant.parsed(grant, folder))
