"""The generated parts of docs/agents.md: problems, tools, and a session."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.transcript import session
from docs.parts import cut, with_parts

from strategist.agent import catalog, server_tools
from strategist.agent.pagination import dumps
from strategist.agent.problem import PROBLEM_CODES

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
WIDTH, SHOWN_ITEMS, SHOWN_CHARACTERS = 128, 2, 1_000
LEFT_OUT = ("content", "last_lines", "assumed", "inputSchema", "outputSchema")
VARYING = re.compile(r'-?\d+(\.\d+)?(e[+-]?\d+)?|null|true|false|(?<="device":)"[^"]*"|(?<="links":)"[^"]*"')


def page(text: str) -> str:
    """The page with its generated parts updated."""
    text = tables(text)
    return with_parts(text, {"session": "\n".join(_session(cut(text, "session")[1]))})


def tables(text: str) -> str:
    """The page with the tables of problems and tools updated."""
    return with_parts(text, {"problems": _problems(), "tools": _tools()})


def _problems() -> str:
    return "\n".join(["| code | what it means |", "|---|---|", *(f"| `{code}` | {text} |" for code, text in PROBLEM_CODES.items())])


def _tools() -> str:
    rows = ["| tool | what it does | arguments, needed ones first |", "|---|---|---|"]
    for tool in (*catalog.TOOLS, *server_tools.TOOLS):
        needed = tool.input_schema["required"]
        names = [f"**{name}**" for name in needed] + [name for name in tool.input_schema["properties"] if name not in needed]
        rows.append(f"| `{tool.name}` | {tool.description} | {', '.join(names)} |")
    return "\n".join(rows)


def _session(before: str) -> Iterator[str]:
    """Blocks of messages and replies. A block that depends on the machine is kept if only figures differ."""
    blocks = [block.removesuffix("\n") for block in before.split("```text\n")[1:]]
    for number, exchange in enumerate(session()):
        block = "\n".join((*_message("→", exchange.asked), *_message("←", exchange.replied), "```"))
        same = exchange.varies and number < len(blocks) and _without_figures(blocks[number]) == _without_figures(block)
        yield f"```text\n{blocks[number] if same else block}"


def _message(sign: str, message: dict[str, Any]) -> Iterator[str]:
    text = dumps(_abbreviated(message))
    yield from _wrapped(f"{sign} {text}" if len(text) <= SHOWN_CHARACTERS else f"{sign} {text[:SHOWN_CHARACTERS]} ...")


def _abbreviated(value: Any) -> Any:
    """A value with the first items of long lists, and without texts that are repeated in the message or vary in length."""
    if isinstance(value, dict):
        return {key: "..." if key in LEFT_OUT else _abbreviated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(_abbreviated, value[:SHOWN_ITEMS]), *(["..."] if len(value) > SHOWN_ITEMS else [])]
    return value


def _without_figures(block: str) -> str:
    """A block's text without figures and names of the machine."""
    return VARYING.sub("", block.replace("\n", ""))


def _wrapped(text: str) -> Iterator[str]:
    """Lines no wider than the page, broken after commas."""
    line = ""
    for piece in text.replace(",", ",\0").split("\0"):
        if line and len(line) + len(piece) > WIDTH:
            yield line
            line = ""
        line += piece
    yield line
