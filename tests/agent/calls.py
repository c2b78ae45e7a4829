"""Calls at a desk, by what comes of them."""

from typing import Any

from strategist.agent.desk import Desk


def answered(desk: Desk, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a call that succeeds."""
    reply = desk.call(name, arguments)
    assert not reply.is_problem, reply.content
    return reply.content


def refused(desk: Desk, name: str, **arguments: Any) -> dict[str, Any]:
    """The problem of a call that does not."""
    reply = desk.call(name, arguments)
    assert reply.is_problem, reply.content
    assert set(reply.content) == {"code", "message", "next"}
    return reply.content
