"""Tool: what an agent can call, as data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strategist.agent.room import Room
from strategist.agent.schema import Schema
from strategist.agent.sheet import Sheet

Function = Callable[[Room, dict[str, Any]], Sheet]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What an agent sees of a call. ``examples`` are whole arguments, legal under ``arguments``. One that only looks changes
    nothing in the workspace."""

    name: str
    description: str
    arguments: Schema
    examples: tuple[dict[str, Any], ...]
    only_looks: bool = True


@dataclass(frozen=True, kw_only=True)
class Tool(Offer):
    """A call that is answered by a sheet."""

    function: Function
