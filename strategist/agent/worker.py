"""Workers: one process per call, confined to the workspace, which ends with the call.

``python -P -m strategist.agent.worker DESCRIPTOR`` is their template. It imports everything once, then forks a worker for each
connection that it receives over the socket DESCRIPTOR, and ends when that is closed. A connection carries one request, and returns
JSON lines: the worker's process id, progress, and the answer. When it is closed, the worker kills its process group, which includes
all processes that it started.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from strategist import api
from strategist.agent import resources
from strategist.agent.catalog import INTERNAL, TOOLS
from strategist.agent.pagination import MAX_BYTES
from strategist.agent.problem import Problem, problem_of
from strategist.agent.session import AgentSession
from strategist.agent.shared_arguments import check_names
from strategist.agent.tool import Tool
from strategist.agent.workers import CHECK
from strategist.agent.workspace import Workspace, confine
from strategist.contract import progress
from strategist.errors import StrategistError

PROGRESS_SECONDS = 1.0


def main(descriptor: int) -> None:
    """Forks workers until the server closes its end; those that still run are killed then."""
    requests = socket.socket(fileno=descriptor)
    forked: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda number, frame: _reap(forked))
    api.load_cards()
    gc.freeze()  # existing objects are never freed, so their pages stay shared with the workers
    while connections := socket.recv_fds(requests, 1, 1)[1]:
        with socket.socket(fileno=connections[0]) as connection, suppress(OSError):  # without room for a process the call fails
            if worker := os.fork():
                forked.add(worker)
                os.setpgid(worker, worker)
                connection.sendall(_line({"process": worker}))
                continue
            try:
                requests.close()
                serve(connection)
            finally:
                os._exit(0)  # nothing of the template is to go on here
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in _reap(forked):
        os.killpg(worker, signal.SIGKILL)


def _reap(forked: set[int]) -> set[int]:
    """Reaps workers that have ended, and returns those that run."""
    for worker in tuple(forked):
        with suppress(ChildProcessError):
            if os.waitpid(worker, os.WNOHANG)[0] == 0:
                continue
        forked.discard(worker)
    return forked


def serve(connection: socket.socket) -> None:
    """Answers the request of a connection."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection.makefile("rb") as stream:
        request = json.loads(stream.readline())
    workspace = Workspace(Path(request["workspace"]))
    confine(workspace, Path(request["temporary"]))
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    writing, over = threading.Lock(), threading.Event()

    def say(line: dict[str, Any]) -> None:
        with writing:
            connection.sendall(_line(line))

    if request["long"]:
        threading.Thread(target=_report, args=(say, over), daemon=True).start()
    reply = _reply(request, workspace)
    over.set()
    say(reply)


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"


def _end_with(connection: socket.socket) -> None:
    """Kills this process group when the server closes the connection, on which it sends nothing else."""
    connection.recv(1)
    os.killpg(0, signal.SIGKILL)


def _report(say: Any, over: threading.Event) -> None:
    """Sends the progress of the call."""
    while not over.wait(PROGRESS_SECONDS):
        stages = progress.under_way()
        counts = ", ".join(f"{each.done} of {each.total} {each.units}" for each in stages)
        say({"share": progress.share_done(stages), "progress": counts or "works"})


def _reply(request: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The answer, or the problem. Paths are relative to the workspace, as in calls."""
    try:
        studies = request["studies"]
        session = AgentSession(
            workspace=workspace, studies=None if studies is None else Path(studies), trials=request["trials"],
            minutes=request["minutes"], job=request["job"],
        )  # fmt: skip
        reply = {"answer": _answer(session, request["function"], request["arguments"])}
        if len(json.dumps(reply)) <= MAX_BYTES:
            return reply
        problem = Problem(code="failed", message=f"the answer is larger than {MAX_BYTES} bytes", next="ask for less")
    except StrategistError as error:
        problem = problem_of(error)
    except Exception as error:  # a defect ends this call only
        problem = Problem(code="failed", message=f"{type(error).__name__}: {error}", next="report it, with the log")
    root = f"{workspace.root}{os.sep}"
    return {"problem": {name: text.replace(root, "") for name, text in asdict(problem).items()}}


def _answer(session: AgentSession, function: str, arguments: dict[str, Any]) -> Any:
    if function == resources.READ:
        return resources.read(session, **arguments)
    if function == CHECK:
        return check_names(session, _tool(arguments["function"]).parsed(arguments["arguments"]))
    return _tool(function).answer(session, arguments)


def _tool(name: str) -> Tool:
    return next(tool for tool in (*TOOLS, *INTERNAL) if tool.name == name)


if __name__ == "__main__":
    main(int(sys.argv[1]))
