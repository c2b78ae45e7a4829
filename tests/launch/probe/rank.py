"""What a rank does in the place of its training program: it notes what it was told, and meets the others where that is asked for.

Run as ``rank.py ARGUMENT...``, with the arguments of the interpreter that it replaces. ``PROBE`` is the folder of its notes,
one of ``HOSTS`` the machine that it is on; with ``PROBE_GLOO`` all ranks add up their numbers on gloo.
"""

import json
import os
import sys
from pathlib import Path

TOLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

HOSTS = ("PROBE_HOST", "SLURMD_NODENAME", "RAY_TEST_NODE")
"""Variables that name a machine: of these tests, of Slurm, and of the tests' Ray."""


def summed() -> int:
    """The sum of the numbers of all ranks, by an all-reduce."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    number = torch.tensor([dist.get_rank()])
    dist.all_reduce(number)
    dist.destroy_process_group()
    return int(number)


def main() -> None:
    """Writes the note of this rank, which another rank of the same number would not overwrite."""
    note = {name: os.environ.get(name) for name in (*TOLD, "NODE_RANK", "GIVEN")}
    note |= {
        "host": next((os.environ[name] for name in HOSTS if name in os.environ), None),
        "arguments": sys.argv[1:],
        "files": sorted(os.listdir()),
    }
    note["sum"] = summed() if os.environ.get("PROBE_GLOO") else None
    with Path(os.environ["PROBE"], f"rank-{note['RANK']}.json").open("x", encoding="utf-8") as file:
        json.dump(note, file)


if __name__ == "__main__":
    main()
