"""The server over streamable HTTP with token authentication. One of the two files that use the SDK."""

import hmac
import re
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from strategist.agent.dispatcher import Dispatcher
from strategist.agent.server import AgentServer
from strategist.errors import InputError
from strategist.frozen import frozen

PATH = "/mcp"
UNAUTHORIZED_BODY = b'{"error":"unauthorized"}'
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


@frozen
class Address:
    """Address to listen on."""

    host: str
    port: int

    @classmethod
    def parsed(cls, text: str) -> "Address":
        """Parses ``127.0.0.1:8765``.

        Raises:
            InputError: the text has another form.
        """
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match[2]) > 65535:
            raise InputError(f"--http {text}", "a host and a port are needed", "write e.g. --http 127.0.0.1:8765")
        return cls(host=match[1].strip("[]"), port=int(match[2]))

    def bound(self) -> socket.socket:
        """A socket bound to the address.

        Raises:
            InputError: the port is in use, or the host is not an address of this machine.
        """
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
        except OSError as error:
            law = f"that address cannot be used: {error.strerror}"
            raise InputError(f"--http {self.host}:{self.port}", law, "name another") from None
        return listener


class Guard:
    """Passes only requests with the token on to the application."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
            if len(given) != 1 or not hmac.compare_digest(given[0], self._expected):
                headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": UNAUTHORIZED_BODY})
                return
        await self._application(scope, receive, send)


def serve_http(
    opening: AbstractAsyncContextManager[Dispatcher], address: Address, token: str, *, on_ready: Callable[[str], None]
) -> None:
    """Serves until interrupted; ``on_ready`` is called with the address."""
    listening = address.bound()
    port = listening.getsockname()[1]
    host = f"[{address.host}]" if ":" in address.host else address.host
    names = [f"{name}:{port}" for name in dict.fromkeys((host, "localhost", "127.0.0.1", "[::1]"))]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
    )

    async def serve() -> bool:
        """Whether a signal ended it: raised in the dispatcher's task group, the interrupt would become a group of exceptions."""
        async with opening as dispatcher:
            application = AgentServer(dispatcher).streamable_http_app(streamable_http_path=PATH, transport_security=security)
            settings = uvicorn.Config(Guard(application, token), log_level="warning", access_log=False)
            listening.listen()
            on_ready(f"http://{host}:{port}{PATH}")
            try:
                await uvicorn.Server(settings).serve(sockets=[listening])  # repeats the signal that ended it
            except KeyboardInterrupt:
                return True
        return False

    with listening:
        if anyio.run(serve):
            raise KeyboardInterrupt
