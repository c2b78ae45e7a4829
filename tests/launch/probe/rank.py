"""Replaces the training program of a rank: writes its environment to a file, and optionally joins the other ranks.

Run as ``rank.py ARGUMENT...``, with the arguments of the interpreter that it replaces. ``PROBE`` is the folder of its notes,
one of ``HOSTS`` names its machine; with ``PROBE_GLOO`` all ranks sum their numbers with gloo.
"""

import json
import os
import sys
from pathlib import Path

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

HOSTS = ("PROBE_HOST", "SLURMD_NODENAME", "RAY_TEST_NODE")
"""Variables that name a machine: of these tests, of Slurm, and of the tests' Ray."""


def summed() -> int:
    """Sum of all rank numbers, by an all-reduce."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    number = torch.tensor([dist.get_rank()])
    dist.all_reduce(number)
    dist.destroy_process_group()
    return int(number)


def main() -> None:
    """Writes the note of this rank; fails if another rank with this number has written one."""
    note = {name: os.environ.get(name) for name in (*RANK_VARIABLES, "NODE_RANK", "GIVEN")}
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
