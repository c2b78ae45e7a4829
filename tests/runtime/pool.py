"""A pool of ranks: programs run as forks of one process that has imported torch, which takes most of their time.

``python -m runtime.pool`` reads one job per line from standard input (:class:`Job` as JSON) and answers with two lines: the process
id of its leader and, when all its ranks have ended, its exit code. The ranks of each job are new processes with their own process
group, so jobs do not affect each other.
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

from strategist_runtime.rank_process import count_memory_closely, die_with_parent, leave

PORT_BYTES = 8
TRACEBACK_SIGNAL = signal.SIGUSR2
"""Makes each rank of a job print its traceback to standard error."""


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
        """Paths of standard output and standard error."""
        return Path(self.folder) / "stdout", Path(self.folder) / "stderr"


def main() -> None:
    """Runs jobs until standard input ends."""
    die_with_parent()  # a rank that never ends would keep the pool
    count_memory_closely()  # like each rank before it imports torch
    import strategist_runtime.simulate.rank
    import strategist_runtime.trial  # noqa: F401 - imported by every rank
    import torch._dynamo  # noqa: F401

    for line in sys.stdin:
        if (leader := os.fork()) == 0:
            lead(Job(**json.loads(line)))
        print(leader, flush=True)
        _, status = os.waitpid(leader, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def lead(job: Job) -> NoReturn:
    """Starts the ranks and exits like torchrun, or with 128 + the signal that ended a rank."""
    die_with_parent()
    os.setsid()
    signal.signal(TRACEBACK_SIGNAL, signal.SIG_IGN)
    for descriptor, target in ((0, Path(os.devnull)), *enumerate(job.outputs, start=1)):
        opened = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(job.working_directory)
    sys.path.insert(0, job.working_directory)  # like python -m
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
    """Runs one rank; ranks meet at the leader's store, like at the agent's store under torchrun."""
    die_with_parent()
    faulthandler.register(TRACEBACK_SIGNAL)
    sys.argv = [job.module, *job.arguments]
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.ranks, "LOCAL_WORLD_SIZE": job.ranks}
    os.environ |= {name: str(value) for name, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.read(reader, PORT_BYTES).decode().strip()}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    try:
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        print(f"{job.module}: rank {rank} returned instead of exiting", file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    leave(1)


def wait(children: Sequence[int]) -> int:
    """Waits for all ranks; the first failure ends the others. A signal has priority over an error of a peer."""
    found = []
    running = set(children)
    while running:
        child, status = os.wait()
        running.discard(child)
        if status == 0:
            continue
        found.append(os.waitstatus_to_exitcode(status))
        for other in tuple(running):
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
