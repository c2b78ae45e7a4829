"""State of an agent session: the workspace, its plans, and the rest of the grant."""

import os
import re
from contextlib import suppress
from pathlib import Path

from strategist.agent.problem import RefusedError
from strategist.agent.workspace import Workspace
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.errors import StrategistError
from strategist.frozen import frozen

MAX_PLANS = 512
PLANS_FOLDER = "plans"
_ID = re.compile(r"[0-9a-f]{4,64}")


@frozen
class KeptPlan:
    """A plan made in a workspace, and its request; None for a plan from a file."""

    plan: Plan
    request: Request | None


@frozen
class AgentSession:
    """State that a call works with.

    studies: the folder of the grant; None without a grant. trials, minutes: the rest of the grant.
    job: name of the job that is prepared; empty for other calls.
    """

    workspace: Workspace
    studies: Path | None = None
    trials: int = 0
    minutes: float = 0.0
    job: str = ""

    def keep(self, plan: Plan, request: Request | None) -> str:
        """Stores a plan under its id for later calls and sessions in the workspace; the oldest plans are deleted."""
        folder = self.workspace.server_folder(PLANS_FOLDER)
        path = folder / f"{plan.id}.json"
        draft = folder / f"{plan.id}.{os.getpid()}"  # workers may keep equal plans at once
        codec.save(KeptPlan(plan=plan, request=request), draft)
        draft.replace(path)
        _tidy(folder)
        return plan.id

    def plan(self, reference: str) -> Plan:
        """The stored plan with that id, or the plan in that file of the workspace.

        Raises:
            RefusedError, FileError: there is none.
        """
        if reference.endswith(".json"):
            return codec.load(Plan, self.workspace.inside(reference)).identified()
        if (stored := self._stored(reference)) is None:
            raise RefusedError("unknown_plan", f"plan {reference} was not made here", "call plan, or name a plan's .json file")
        return stored.plan

    def request(self, reference: str) -> Request | None:
        """The request of a stored plan; None for a plan from a file."""
        stored = self._stored(reference)
        return None if stored is None else stored.request

    def _stored(self, reference: str) -> KeptPlan | None:
        """The stored plan; None if there is none, or if its id does not match its file name."""
        if _ID.fullmatch(reference) is None:
            return None
        try:
            stored = codec.load(KeptPlan, self.workspace.server_folder(PLANS_FOLDER) / f"{reference}.json")
        except StrategistError:
            return None
        return stored if stored.plan.identified().id == reference else None

    def folders(self, names: list[str]) -> list[Path]:
        """Folders of cards in the workspace.

        Raises:
            RefusedError: a folder does not exist.
        """
        found = [self.workspace.inside(name) for name in names]
        for name, folder in zip(names, found, strict=True):
            if not folder.is_dir():
                raise RefusedError("unreadable_file", f"{name} is not a folder of the workspace", "name a folder that holds cards")
        return found


def _tidy(folder: Path) -> None:
    """Deletes the oldest plans beyond the limit; several workers may do that at once."""
    plans = []
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):
            plans.append((path.stat().st_mtime_ns, path))
    for _, oldest in sorted(plans)[:-MAX_PLANS]:
        oldest.unlink(missing_ok=True)
