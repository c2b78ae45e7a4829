"""The server's side of workers: their template, and calls that can be cancelled and limited in time."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from strategist.agent.pagination import MAX_BYTES
from strategist.agent.problem import RefusedError
from strategist.agent.workspace import Workspace

MAX_SHORT_CALLS = 8
"""Maximum number of concurrent short calls; further ones wait."""

CHECK = "check arguments"
"""Name of the function that refuses arguments of a call that names what does not exist (worker.py)."""

TEMPORARY = "temporary"
OnProgress = Callable[[float, str], Awaitable[None]]
"""Called with the finished share of a call (0 if unknown), and its progress in words."""


class Template:
    """The process from which workers are forked, one for all workspaces of this process. It is restarted if it is gone, and ends
    with this process, which closes the socket.
    """

    def __init__(self) -> None:
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def process(self) -> int:
        """Its process id; 0 before it is started. Workers are its children."""
        return self._process.pid if self._process else 0

    def start(self) -> socket.socket:
        """Starts the process if necessary; returns the socket over which connections are sent."""
        if self._requests is None:
            self._requests, child_end = socket.socketpair()
            # A model's name is no reason to open a connection. torch 2.11 needs a user's name; workers cannot read /etc/passwd.
            environment = {"USER": str(os.getuid()), **os.environ, "HF_HUB_OFFLINE": "1"}
            with child_end:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "strategist.agent.worker", str(child_end.fileno())],
                    pass_fds=(child_end.fileno(),),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, env=environment,
                )  # fmt: skip
        return self._requests

    def connect(self) -> socket.socket:
        """A connection to a new worker.

        Raises:
            RefusedError: no process can be started.
        """
        parent_end, child_end = socket.socketpair()
        with child_end, self._lock:
            for _ in range(2):
                try:
                    socket.send_fds(self.start(), [b"."], [child_end.fileno()])
                    return parent_end
                except OSError:
                    self._end()
        parent_end.close()
        raise RefusedError("failed", "no process can be started for the call", "free memory or processes on the server's machine")

    def _end(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
            self._requests = None


@cache
def template() -> Template:
    """The template of this process."""
    return Template()


class Workers:
    """Calls in separate processes: at most ``long_calls`` long ones at a time, so that short ones are answered beside them."""

    def __init__(self, workspace: Workspace, long_calls: int) -> None:
        self._workspace = workspace
        self._limits = {True: anyio.CapacityLimiter(long_calls), False: anyio.CapacityLimiter(MAX_SHORT_CALLS)}
        self._numbers = count()
        _tidy(workspace.server_folder(TEMPORARY))
        template().start()

    async def run(
        self, function: str, arguments: Any, *, long: bool = False, on_progress: OnProgress | None = None, **session: Any
    ) -> Any:
        """Calls a function in a worker and returns its answer. The worker and its child processes have ended when this returns,
        raises or is cancelled.

        Raises:
            RefusedError: the function refuses, or its process has died.
        """
        if long and not self._limits[True].available_tokens:  # what is refused need not wait
            await self.run(CHECK, {"function": function, "arguments": arguments}, **session)
        async with self._limits[long]:
            temporary = self._workspace.server_folder(TEMPORARY, f"{os.getpid()}-{next(self._numbers)}")
            request = {
                "function": function, "arguments": arguments, "long": long, "workspace": str(self._workspace.root),
                "temporary": str(temporary), **session,
            }  # fmt: skip
            try:
                return await _run(request, on_progress)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)


async def _run(request: dict[str, Any], on_progress: OnProgress | None) -> Any:
    try:
        async with await UNIXSocketStream.from_socket(template().connect()) as stream:
            received = BufferedByteReceiveStream(stream)
            with anyio.CancelScope(shield=True):  # a call that is cancelled now must know what to kill
                group = (await _received(received))["process"]
            try:
                await stream.send(json.dumps(request).encode() + b"\n")
                if on_progress is not None:
                    await on_progress(0.0, "works")
                return await _answer(received, on_progress)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
        died = "the process of the call has died, for want of memory perhaps"
        raise RefusedError("failed", died, "ask for less, or repeat the call") from None


async def _answer(received: BufferedByteReceiveStream, on_progress: OnProgress | None) -> Any:
    """The last line that a worker sends; the others report its progress."""
    while True:
        line = await _received(received)
        if "answer" in line:
            return line["answer"]
        if "problem" in line:
            raise RefusedError(**line["problem"])
        if on_progress is not None:
            await on_progress(line["share"], line["progress"])


async def _received(stream: BufferedByteReceiveStream) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(await stream.receive_until(b"\n", MAX_BYTES + 1000))
    return line


def _tidy(folder: Path) -> None:
    """Deletes temporary files of servers that are gone."""
    for left in folder.iterdir():
        with suppress(ValueError):
            if not alive(int(left.name.partition("-")[0])):
                shutil.rmtree(left, ignore_errors=True)


def alive(process: int) -> bool:
    """Whether the process exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
