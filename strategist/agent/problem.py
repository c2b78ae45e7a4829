"""Problems: errors of a tool call with a stable code and the next step."""

import re

from strategist.errors import FileError, InputError, StrategistError
from strategist.frozen import frozen

PROBLEM_CODES = {
    "invalid_arguments": "The arguments do not match the tool's schema; nothing was done.",
    "invalid_value": "A value in a request, card, plan or study is not allowed.",
    "unreadable_file": "A file cannot be read, has the wrong content, or cannot be written.",
    "outside_workspace": "A path leads outside the workspace.",
    "unknown_tool": "There is no tool, resource or prompt with that name.",
    "unknown_handle": "The handle belongs to another session, or was dropped when newer ones were made.",
    "unknown_plan": "No plan made in this workspace has that id.",
    "unknown_job": "No job in this workspace has that name.",
    "not_granted": "The server was started without a grant for trials.",
    "grant_spent": "The grant has fewer trials or minutes left than the call needs.",
    "busy": "A trial or tuning is already running; only one runs at a time.",
    "out_of_time": "The call exceeded the server's time limit and was ended.",
    "cancelled": "The call was cancelled.",
    "failed": "The machine failed, for example with a full disk, or strategist has a defect.",
}
"""All codes with their meaning. Codes are never renamed; new ones may be added."""

_OPTION = re.compile(r"--([a-z][a-z-]*)")
_COMMAND = re.compile(r"write one with strategist (plan|run)\b[^;]*")
_TOOLS = {"plan": "make one with plan and save_plan", "run": "make one with start_trial"}
"""By command that an error names, the tools that an agent calls instead."""


@frozen
class Problem:
    """An error of a tool. ``code``: its kind (resource strategist://problems); ``next``: what to do, in one sentence."""

    code: str
    message: str
    next: str


class RefusedError(StrategistError):
    """A refused call, with its problem."""

    def __init__(self, code: str, message: str, next: str) -> None:
        super().__init__(f"{message}; {next}")
        self.code = code
        self.problem = Problem(code=code, message=message, next=next)


def problem_of(error: StrategistError) -> Problem:
    """An error of the API as a problem for agents: command-line options become arguments, commands become tools."""
    if isinstance(error, RefusedError):
        return error.problem
    if isinstance(error, InputError):
        return Problem(code=error.code, message=_arguments(f"{error.value}: {error.law}"), next=_arguments(error.do))
    do = "correct the file, or name another" if isinstance(error, FileError) else "correct the value"
    return Problem(code=error.code, message=_arguments(str(error)), next=do)


def _arguments(text: str) -> str:
    text = _COMMAND.sub(lambda match: _TOOLS[match[1]], text)
    return _OPTION.sub(lambda match: match[1].replace("-", "_"), text)
