"""The desk: takes a call, looks at its arguments, has it done, and answers in pages. Knows nothing of how calls travel."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from strategist import api
from strategist.agent import resources
from strategist.agent.audit import Audit
from strategist.agent.catalog import MORE, TOOLS
from strategist.agent.problem import Problem, RefusedError, problem_of
from strategist.agent.room import Room
from strategist.agent.sheet import Pages, Sheet, dumps
from strategist.agent.tool import Offer, Tool
from strategist.agent.workspace import Cell
from strategist.cards.card import ENGLISH
from strategist.errors import StrategistError


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a call is answered with; a problem has its three fields instead of an answer."""

    content: dict[str, Any]
    is_problem: bool = False


class Desk:
    """One session: calls are done one after the other, each written into the log before anything happens."""

    def __init__(self, room: Room, audit: Audit, tools: Sequence[Tool] = TOOLS) -> None:
        self.room = room
        self._audit = audit
        self._pages = Pages()
        self._cell = Cell(room.workspace)
        self._one_at_a_time = threading.Lock()
        self.tools: dict[str, Offer] = {tool.name: tool for tool in (*tools, MORE)}
        self._validators = {name: Draft202012Validator(tool.arguments) for name, tool in self.tools.items()}

    def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Does what is asked, or says why not; raises only where the log cannot be written."""
        return self._logged(name, arguments, lambda: self._done(name, arguments))

    def read(self, address: str) -> Reply:
        """A resource, as its kind and text."""

        def done() -> dict[str, Any]:
            kind, text = self._cell.run(lambda: resources.read(self.room, address))
            return {"kind": kind, "text": text}

        return self._logged("resources/read", {"address": address}, done)

    def close(self) -> None:
        """Ends the thread in which calls are done."""
        self._cell.close()

    def _logged(self, name: str, arguments: dict[str, Any], done: Callable[[], dict[str, Any]]) -> Reply:
        with self._one_at_a_time:
            number = self._audit.begins(name, arguments)
            try:
                reply = Reply(content=done())
            except StrategistError as error:
                reply = self._problem(problem_of(error))
            except Exception as error:  # a defect is the server's, and the next call may well succeed
                reply = self._problem(
                    Problem(code="failed", message=f"{type(error).__name__}: {error}", next="report it, with the log")
                )
            self._audit.ends(number, reply.content["code"] if reply.is_problem else "ok")
            return reply

    def _done(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        tool = self.tools.get(name)
        if tool is None:
            raise RefusedError("unknown_tool", f"tool {name} is none", f"known are {', '.join(self.tools)}")
        if (wrong := best_match(self._validators[name].iter_errors(arguments))) is not None:
            place = ".".join(map(str, wrong.absolute_path)) or "the arguments"
            example = f"write e.g. {dumps(tool.examples[-1])}"
            raise RefusedError("invalid_arguments", f"{place}: {wrong.message[:300]}", example)
        if not isinstance(tool, Tool):
            return self._pages.more(arguments["handle"])
        return self._pages.first(self._cell.run(lambda: self._sheet(tool, arguments)))

    def _sheet(self, tool: Tool, arguments: dict[str, Any]) -> Sheet:
        sheet = tool.function(self.room, arguments)
        if (language := arguments.get("lang", ENGLISH)) == ENGLISH:
            return sheet
        return api.in_language(sheet, language, cards=self.room.folders(arguments.get("cards", [])))

    def _problem(self, problem: Problem) -> Reply:
        """Files of the workspace are named from its root, as calls name them."""
        root = f"{self.room.workspace.root}{os.sep}"
        return Reply(content={name: text.replace(root, "") for name, text in asdict(problem).items()}, is_problem=True)
