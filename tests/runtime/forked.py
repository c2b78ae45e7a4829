"""Runs a rank program of the tests on processes forked from one that has imported torch: importing it is most of what they do.

``python -m runtime.forked RANKS MODULE ARGUMENT...`` stands for torchrun; trials of the product are started by torchrun itself.
"""

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import torch.distributed as dist
from strategist_runtime.process import die_with_parent

PORT_BYTES = 8


def main(ranks: int, module: str, arguments: Sequence[str]) -> NoReturn:
    """Ends as torchrun would, or with 128 + the signal that ended a rank."""
    import_module(module)
    reader, writer = os.pipe()
    children = []
    for rank in range(ranks):
        if (child := os.fork()) == 0:
            run(rank, ranks, module, arguments, reader)
        children.append(child)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # starts a thread, so not before the forks
    os.write(writer, str(store.port).ljust(PORT_BYTES).encode() * ranks)
    os._exit(wait(children))


def run(rank: int, ranks: int, module: str, arguments: Sequence[str], reader: int) -> NoReturn:
    """One rank; the store that ranks meet at is the parent's, as torchrun's is the agent's."""
    die_with_parent()
    sys.argv = [module, *arguments]
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ |= {name: str(value) for name, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.read(reader, PORT_BYTES).decode().strip()}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    del sys.modules[module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(f"{module}: rank {rank} came back instead of leaving")


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
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
