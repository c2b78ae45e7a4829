"""Tool calls of an SDK client, with the expected result: an answer or a problem."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError

from strategist.agent.dispatcher import Dispatcher
from strategist.agent.open_session import open_session
from strategist.agent.server import AgentServer


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Content of a reply; a problem has its three fields instead of an answer."""

    content: dict[str, Any]
    is_problem: bool = False


@dataclass(kw_only=True)
class Caller:
    """Synchronous client of a server in this process; checks each answer against its schema."""

    portal: BlockingPortal
    client: Client
    dispatcher: Dispatcher

    def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        result = self.portal.call(self.client.call_tool, name, arguments)
        return Reply(content=result.structured_content, is_problem=result.is_error)

    def read(self, address: str) -> Reply:
        try:
            [content] = self.portal.call(self.client.read_resource, address).contents
        except MCPError as error:
            return Reply(content=error.error.data, is_problem=True)
        return Reply(content={"kind": content.mime_type, "text": content.text})


@contextmanager
def serving(workspace: Path, grant: str | None = None, study: str | None = None, **limits: Any) -> Iterator[Caller]:
    """A server for the workspace, and its client."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_session(str(workspace), grant, study, **limits)) as dispatcher,
        portal.wrap_async_context_manager(Client(AgentServer(dispatcher))) as client,
    ):
        yield Caller(portal=portal, client=client, dispatcher=dispatcher)


def answered(caller: Caller, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a call that succeeds."""
    reply = caller.call(name, arguments)
    assert not reply.is_problem, reply.content
    return reply.content


def refused(caller: Caller, name: str, **arguments: Any) -> dict[str, Any]:
    """The problem of a call that fails."""
    reply = caller.call(name, arguments)
    assert reply.is_problem, reply.content
    assert set(reply.content) == {"code", "message", "next"}
    return reply.content
