"""The room in which tools work: the workspace, the plans of this session, and what may be started."""

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from strategist.agent.jobs import Jobs
from strategist.agent.problem import RefusedError
from strategist.agent.workspace import Workspace
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.request import Request

MOST_PLANS = 512


@dataclass(frozen=True, kw_only=True)
class Room:
    """One session's. ``plans`` are by id, each with the request that it answers."""

    workspace: Workspace
    jobs: Jobs
    plans: OrderedDict[str, tuple[Plan, Request]] = field(default_factory=OrderedDict)

    def keep(self, plan: Plan, request: Request) -> str:
        """Remembers a plan under its id; the oldest make room."""
        self.plans[plan.id] = (plan, request)
        self.plans.move_to_end(plan.id)
        while len(self.plans) > MOST_PLANS:
            self.plans.popitem(last=False)
        return plan.id

    def plan(self, reference: str) -> Plan:
        """The plan of this session with that id, or in that file of the workspace.

        Raises:
            RefusedError, FileError: there is none.
        """
        if reference in self.plans:
            return self.plans[reference][0]
        if not reference.endswith(".json"):
            raise RefusedError(
                "unknown_plan", f"plan {reference} is none of this session", "call plan, or name a plan's .json file"
            )
        return codec.load(Plan, self.workspace.inside(reference)).identified()

    def request(self, reference: str) -> Request | None:
        """What was asked when the plan was made; None for a plan of a file."""
        kept = self.plans.get(reference)
        return None if kept is None else kept[1]

    def folders(self, names: list[str]) -> list[Path]:
        """Folders of cards, which lie in the workspace.

        Raises:
            RefusedError: one is none.
        """
        found = [self.workspace.inside(name) for name in names]
        for name, folder in zip(names, found, strict=True):
            if not folder.is_dir():
                raise RefusedError("unreadable_file", f"{name} is no folder of the workspace", "name a folder that holds cards")
        return found
