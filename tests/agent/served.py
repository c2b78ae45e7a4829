"""The server as a separate process."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

TOKEN = "correct-horse-battery-staple"
COMMAND = [sys.executable, "-m", "strategist.cli.main", "mcp"]


@contextmanager
def started(workspace: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server on a free port that accepts ``TOKEN``, and its address."""
    command = [*COMMAND, "--workspace", str(workspace), "--http", "127.0.0.1:0"]
    environment = {**os.environ, "STRATEGIST_MCP_TOKEN": TOKEN}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            assert "serves http://127.0.0.1:" in line
            yield process, line.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def over_http(workspace: Path) -> Iterator[str]:
    """The address of a running server."""
    with started(workspace) as (_, address):
        yield address


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[Client]:
    """A client of the SDK at that address."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=None) as own,
        Client(streamable_http_client(address, http_client=own)) as client,
    ):
        yield client
