"""Tools: functions that agents call. Schemas of arguments and answers follow from their types."""

import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from strategist import api
from strategist.agent.pagination import Answer, PagedAnswer, StartedJob, dumps
from strategist.agent.problem import Problem, RefusedError
from strategist.agent.schema import Arguments, Schema, argument_schema
from strategist.contract import codec
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.schema import type_schema
from strategist.frozen import frozen


@frozen
class Tool:
    """A function that agents can call.

    function: takes the session (or the dispatcher, for tools of the server) and the arguments, and returns an answer.
    examples: complete arguments, valid under the schema.
    long: it may take longer than a client waits, and becomes a job then.
    changes: it writes files of the workspace, or starts or ends something.
    of_server: the server runs it instead of a worker; it is async, and also takes a progress callback.
    """

    function: Callable[..., Any]
    examples: tuple[dict[str, Any], ...]
    long: bool = False
    changes: bool = False
    of_server: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        """The function's docstring, on one line."""
        return " ".join((self.function.__doc__ or "").split())

    @cached_property
    def _types(self) -> dict[str, Any]:
        return typing.get_type_hints(self.function)

    @cached_property
    def arguments(self) -> type[Arguments]:
        found: type[Arguments] = self._types["arguments"]
        return found

    @cached_property
    def input_schema(self) -> Schema:
        return {**argument_schema(self.arguments), "examples": list(self.examples)}

    @cached_property
    def output_schema(self) -> Schema:
        """Schema of an answer's page, of a problem, and for a long tool also of the job that it became."""
        types: dict[str, Schema] = {}
        returned = self._types["return"]
        problem = type_schema(Problem, types)
        if typing.get_origin(returned) is dict:  # a page of any tool's answer
            pages: list[Schema] = [{"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}]
        else:
            head, item = typing.get_args(returned)
            pages = [_page(head, item, types)]
        if self.long:
            pages.append(_page(StartedJob, typing.Never, types))
        return {"type": "object", "anyOf": [*pages, problem], "$defs": types}

    def parsed(self, arguments: dict[str, Any]) -> Any:
        """The arguments of a call, validated and converted to the type that the tool's function takes.

        Raises:
            RefusedError: they do not match the schema.
        """
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        position = ".".join(map(str, first["loc"])) or "the arguments"
        law, do = first["msg"][:300], f"write e.g. {dumps(self.examples[-1])}"
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            known = ", ".join(self.arguments.model_fields) or "none"
            law, do = "is not an argument of this tool", f"its arguments are {known}"
        raise RefusedError("invalid_arguments", f"{position}: {law}", do)

    def answer(self, session: Any, arguments: dict[str, Any]) -> Answer:
        """The function's answer as JSON data, in the requested language."""
        parsed = self.parsed(arguments)
        sheet: PagedAnswer[Any, Any] = self.function(session, parsed)
        if (language := getattr(parsed, "lang", api.ENGLISH)) != api.ENGLISH:
            sheet = api.in_language(sheet, language, cards=session.folders(parsed.cards))
        return encoded(sheet)


def tool(
    *examples: dict[str, Any], long: bool = False, changes: bool = False, of_server: bool = False
) -> Callable[[Callable[..., Any]], Tool]:
    """Decorator that makes a function a tool."""
    return lambda function: Tool(function=function, examples=examples, long=long, changes=changes, of_server=of_server)


def encoded(sheet: PagedAnswer[Any, Any]) -> Answer:
    """An answer as JSON data."""
    return codec.encode(sheet.head), [codec.encode(item) for item in sheet.items]


def _page(head: Any, item: Any, types: dict[str, Schema]) -> Schema:
    """Schema of a page: the fields of the head, the items, and the handle of the next page."""
    about = types.pop(type_schema(head, types)["$ref"].rpartition("/")[2])
    items = {"type": "array", "items": type_schema(item, types)} if item is not typing.Never else {"type": "array", "maxItems": 0}
    more = {"items": items, "left": {"type": "integer"}, "handle": {"type": "string"}}
    return {**about, "properties": {**about["properties"], **more}, "required": [*about["required"], "items"]}


@frozen
class Finding:
    """A finding on a file, a card or the machine. ``do``: how to correct it. ``file``: empty if the answer names the file, or the
    card was given as text.
    """

    code: str
    level: str
    message: str
    do: str
    file: str = ""
    line: int | None = None


def finding(found: Diagnostic, file: str = "") -> Finding:
    """A finding as agents see it."""
    return Finding(code=found.code, level=found.level.value, message=found.message, do=found.do, file=file, line=found.line)
