"""Reads the plan file of a command that executes a plan."""

from pathlib import Path

from strategist.cli import render
from strategist.contract import codec
from strategist.contract.plan import Plan


def read(path: str | Path) -> Plan:
    """The plan in a file; one that was edited goes on under the id of what it says now.

    Raises:
        FileError: there is none, or it is no plan.
    """
    plan = codec.load(Plan, path)
    if plan.identified() == plan:
        return plan
    render.print_note(f"{path} was edited after it was planned: its prediction is that of the plan before")
    return plan.identified()
