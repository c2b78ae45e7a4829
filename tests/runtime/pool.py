"""A pool of ranks: programs run as forks of one process that has imported torch, which is most of what they would do.

``python -m runtime.pool`` reads one job a line from standard input (:class:`Job` as JSON) and answers with two lines: the process
id of its leader and, when all its ranks have ended, its exit code. The ranks of each job are new processes and meet in a group
of their own, so no job sees what another left behind.
"""

import faulthandler
import json
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from strategist_runtime.process import count_memory_closely, die_with_parent, leave

PORT_BYTES = 8
WHERE = signal.SIGUSR2
"""Has each rank of a job say on standard error where it is."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """``module`` run with ``arguments`` on ``ranks`` processes, whose output goes into files of ``folder``."""

    ranks: int
    module: str
    arguments: Sequence[str]
    variables: dict[str, str]
    working_directory: str
    folder: str

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @property
    def outputs(self) -> tuple[Path, Path]:
        """Where standard output and standard error lie."""
        return Path(self.folder) / "stdout", Path(self.folder) / "stderr"


def main() -> None:
    """Takes jobs until standard input ends."""
    count_memory_closely()  # as each rank does before it imports torch
    import strategist_runtime.trial  # noqa: F401 - what every rank would import
    import torch._dynamo  # noqa: F401

    for line in sys.stdin:
        if (leader := os.fork()) == 0:
            lead(Job(**json.loads(line)))
        print(leader, flush=True)
        _, status = os.waitpid(leader, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def lead(job: Job) -> NoReturn:
    """Starts the ranks and ends as torchrun would, or with 128 + the signal that ended a rank."""
    die_with_parent()
    os.setsid()
    signal.signal(WHERE, signal.SIG_IGN)
    for descriptor, target in ((0, Path(os.devnull)), *enumerate(job.outputs, start=1)):
        opened = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(job.working_directory)
    os.environ |= job.variables
    reader, writer = os.pipe()
    children = []
    for rank in range(job.ranks):
        if (child := os.fork()) == 0:
            run(rank, job, reader)
        children.append(child)
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # starts a thread, so not before the forks
    os.write(writer, str(store.port).ljust(PORT_BYTES).encode() * job.ranks)
    os._exit(wait(children))


def run(rank: int, job: Job, reader: int) -> NoReturn:
    """One rank; the store that ranks meet at is the leader's, as torchrun's is the agent's."""
    die_with_parent()
    faulthandler.register(WHERE)
    sys.argv = [job.module, *job.arguments]
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.ranks, "LOCAL_WORLD_SIZE": job.ranks}
    os.environ |= {name: str(value) for name, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.read(reader, PORT_BYTES).decode().strip()}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    try:
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        print(f"{job.module}: rank {rank} came back instead of leaving", file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    leave(1)


def wait(children: Sequence[int]) -> int:
    """Waits for all; the first that fails ends the others. A signal is a better reason than the complaint of a peer."""
    found = []
    left = set(children)
    while left:
        child, status = os.wait()
        left.discard(child)
        if status == 0:
            continue
        found.append(os.waitstatus_to_exitcode(status))
        for other in tuple(left):
            ended, status = os.waitpid(other, os.WNOHANG)
            if ended:
                found.append(os.waitstatus_to_exitcode(status))
            else:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
        break
    worst = min(found, default=0)
    return 128 - worst if worst < 0 else worst


if __name__ == "__main__":
    main()
