"""The plan file of commands that execute a plan, and their default outputs."""

from pathlib import Path

from strategist.cli import render
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.files import outputs


def default_output(path: Path, ending: str) -> Path:
    """Default output of a command on a plan file: next to the file; of standard input, in the current folder."""
    return Path(f"plan{ending}") if str(path) == outputs.STANDARD_INPUT else path.with_name(f"{path.stem}{ending}")


def read(path: str | Path) -> Plan:
    """The plan in a file; an edited one gets the id of its content.

    Raises:
        FileError: the file is missing, or is not a plan.
    """
    plan = codec.load(Plan, path)
    if plan.identified() == plan:
        return plan
    render.print_note(f"{path} was edited after it was planned: its prediction is that of the plan before")
    return plan.identified()
