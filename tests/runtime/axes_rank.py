"""One rank of four in a mesh of pipeline and tensor parallelism; started by test_collectives."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime.measure.profile import Profile, profiled
from strategist_runtime.mesh import axis_of
from strategist_runtime.rank_process import leave
from torch.distributed.device_mesh import init_device_mesh

from strategist.contract.layout import Layout

LAYOUT = Layout(pp=2, tp=2)
ROUNDS = 3
COMPARED = ("compute_seconds", "pipeline_waits", "shortest_transfer_seconds", "exposed_seconds_by_axis", "time")


def profile_step() -> Profile:
    """Profiles a step in which the first stage computes and sends, the second receives, and each stage reduces a large tensor over
    tp.
    """
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    stage, peers = mesh.get_local_rank("pp"), dist.get_process_group_ranks(mesh.get_group("pp"))
    square, large, message = torch.ones(600, 600), torch.ones(4_000_000), torch.ones(1000)

    def step() -> None:
        for _ in range(ROUNDS):
            if stage == 0:
                for _ in range(8):
                    square @ square
                dist.send(message, peers[1], group=mesh.get_group("pp"))
            else:
                dist.recv(message, peers[0], group=mesh.get_group("pp"))
        dist.all_reduce(large, group=mesh.get_group("tp"))
        dist.all_reduce(torch.ones(1))

    step()
    dist.barrier()
    return profiled(step, torch.device("cpu"), lambda group: axis_of(group, LAYOUT))


def main(folder: Path) -> None:
    """Writes this rank's measurements."""
    dist.init_process_group("gloo")
    found = profile_step()
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps({name: getattr(found, name) for name in COMPARED}), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
