"""The parts of docs/agents.md that are made: problems, tools, and a session; ``python -m agent.page FILE`` writes them there."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strategist.agent.desk import Desk
from strategist.agent.open import opened
from strategist.agent.problem import CODES
from strategist.agent.sheet import dumps

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
CONFIG = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}
WIDTH, SHOWN_ITEMS, SHOWN_CHARACTERS = 128, 2, 1_000


def page(text: str) -> str:
    """The page with these parts as they are now."""
    with tempfile.TemporaryDirectory() as folder, opened(folder) as desk:
        parts = {"problems": _problems(), "tools": _tools(desk), "session": "\n".join(_session(desk))}
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        text = before + begin + part + "\n" + end + rest.partition(end)[2]
    return text


def _problems() -> str:
    return "\n".join(["| code | what it means |", "|---|---|", *(f"| `{code}` | {text} |" for code, text in CODES.items())])


def _tools(desk: Desk) -> str:
    rows = ["| tool | what it does | arguments, needed ones first |", "|---|---|---|"]
    for tool in desk.tools.values():
        needed = tool.arguments["required"]
        names = [f"**{name}**" for name in needed] + [name for name in tool.arguments["properties"] if name not in needed]
        rows.append(f"| `{tool.name}` | {tool.description} | {', '.join(names)} |")
    return "\n".join(rows)


def _session(desk: Desk) -> Iterator[str]:
    """From a question to a card: what does not fit, what does, why, proof in a file of another system, evidence."""
    (desk.room.workspace.root / "ds_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    asked = yield from _call(desk, "plan", model="8b", gpus="2x8xA100", global_batch=128)
    best = asked["best"]["plan"]
    yield from _call(desk, "more", handle=asked["handle"])
    yield from _call(desk, "explain", plan=best, setting="recompute")
    yield from _call(desk, "why_not", plan=best, setting="tp=16")
    yield from _call(desk, "check_config", file="ds_config.json", model="8b", gpus="2x8xA100", global_batch=128)
    measured = {"step_seconds": 9.4, "comm_ratio": 0.5, "exposed_comm_ratio": 0.4, "peak_memory_gib": 30.0}
    yield from _call(desk, "advise", plan=best, measured=measured)
    yield from _call(desk, "search_cards", query="communication shows micro_batch")
    yield from _call(desk, "record_evidence", study="studies/first", plan=best, measured=measured)
    yield from _call(desk, "export", plan=best, format="torchtitan", folder="train")
    yield from _call(desk, "start_trial", plan=best, minutes=5)


def _call(desk: Desk, name: str, /, **arguments: Any) -> Any:
    """Lines of a call and its answer; returns the answer."""
    content = desk.call(name, arguments).content
    shown = dict(content)
    if "items" in shown:
        items = content["items"]
        shown["items"] = [*items[:SHOWN_ITEMS], *(["..."] if len(items) > SHOWN_ITEMS else [])]
    text = dumps(shown)
    yield "```text"
    yield f"{name} {dumps(arguments)}"
    yield from _wrapped(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ...")
    yield "```"
    return content


def _wrapped(text: str) -> Iterator[str]:
    """Lines that are no wider than the page, broken after commas."""
    line = ""
    for piece in text.replace(",", ",\0").split("\0"):
        if line and len(line) + len(piece) > WIDTH:
            yield line
            line = ""
        line += piece
    yield line


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.read_text(encoding="utf-8")), encoding="utf-8")
