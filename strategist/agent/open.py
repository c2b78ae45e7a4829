"""A desk opened for a session, and tidied up after it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strategist.agent.audit import Audit
from strategist.agent.desk import Desk
from strategist.agent.grant import Grant, Purse
from strategist.agent.jobs import Jobs
from strategist.agent.room import Room
from strategist.agent.workspace import Workspace
from strategist.errors import InputError

LOG, STUDIES = "audit.jsonl", "studies"


@contextmanager
def opened(workspace: str, grant: str | None = None, study: str | None = None, audit: str | None = None) -> Iterator[Desk]:
    """A desk for a workspace, with what was granted; a job that still runs at the end is ended.

    Raises:
        InputError, FileError: a folder is none, or the grant says nothing.
    """
    place = Workspace.at(workspace)
    os.environ["HF_HUB_OFFLINE"] = "1"  # a model's name is no reason to open a connection
    jobs = Jobs(None if grant is None else _purse(place, grant, study))
    desk = Desk(Room(workspace=place, jobs=jobs), Audit(Path(audit) if audit else place.own() / LOG))
    try:
        yield desk
    finally:
        jobs.close()
        desk.close()


def _purse(place: Workspace, grant: str, study: str | None) -> Purse:
    folder = (Path(study) if study else place.root / STUDIES).resolve()
    if not folder.is_relative_to(place.root):
        raise InputError(f"--study {study}", "lies outside the workspace", "name a folder inside it")
    return Purse(Grant.parsed(grant, folder))
