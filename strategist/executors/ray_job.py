"""Runs a command on each node of a Ray cluster: ``python ray_job.py NODES RESOURCE EACH RESTARTS WORKDIR COMMAND...``.

Each node is a worker of Ray Train, placed on a node of its own, with EACH units of Ray's RESOURCE (GPU or CPU). The command gets
MASTER_ADDR, MASTER_PORT, NNODES and NODE_RANK, and runs in WORKDIR, into which the files beside this one are copied first; every
node must have them at this path. If the command fails on one node, it is ended on all nodes and started again, RESTARTS times.
The RayJob of an exported plan contains a copy of this file, so it needs Ray and torch, but nothing of strategist.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.backend import BackendConfig
from ray.train.collective import broadcast_from_rank_zero
from ray.train.torch import TorchTrainer

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class NoGroup(BackendConfig):  # type: ignore[misc]
    """Makes Ray's workers form no process group, because the ranks form their own.

    With a TorchConfig, each worker would import torch, which takes longer than everything else, and hold memory of its device.
    """

    backend = "gloo"
    """The only attribute that TorchTrainer reads."""


def trainer(
    work: Callable[[dict[str, Any]], None],
    given: dict[str, Any],
    *,
    nodes: int,
    resource: str,
    each: int,
    restarts: int,
    storage: str,
) -> TorchTrainer:
    """A trainer that runs ``work`` on each node; if it fails on one, it starts again on all."""
    return TorchTrainer(
        work,
        train_loop_config=given,
        torch_config=NoGroup(),
        scaling_config=ScalingConfig(
            num_workers=nodes,
            use_gpu=resource == "GPU",
            resources_per_worker={resource: each},
            placement_strategy="STRICT_SPREAD",
        ),
        run_config=RunConfig(
            name="ray",
            storage_path=storage,
            failure_config=FailureConfig(max_failures=restarts, max_preemption_failures=restarts),
        ),
    )


def run(given: dict[str, Any]) -> None:
    """Runs the command on one node.

    Raises:
        CalledProcessError: the command failed.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        own_address = (ray.util.get_node_ip_address(), free.getsockname()[1])
    address, port = broadcast_from_rank_zero(own_address)
    rendezvous = {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "NNODES": str(given["nodes"]),
        "NODE_RANK": str(ray.train.get_context().get_world_rank()),
    }
    environment = {**os.environ, **rendezvous}
    _copy_files(Path(given["folder"]), Path(given["workdir"]))
    subprocess.run(given["command"], cwd=given["workdir"], env=environment, preexec_fn=_ends_with_worker, check=True)


def _copy_files(folder: Path, workdir: Path) -> None:
    """Copies the files of a folder into ``workdir``, each atomically, since other nodes may share it."""
    workdir.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.is_file():
            draft = workdir / f".{file.name}.{os.getpid()}"
            shutil.copy(file, draft)
            draft.replace(workdir / file.name)


def _ends_with_worker() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    nodes, each, restarts = (int(sys.argv[place]) for place in (1, 3, 4))
    folder = str(Path(__file__).parent.absolute())  # not resolved: the files of a ConfigMap are links
    given = {"nodes": nodes, "command": sys.argv[6:], "folder": folder, "workdir": sys.argv[5]}
    storage = str(Path.home() / "ray_results")
    ray.init(address="auto")
    trainer(run, given, nodes=nodes, resource=sys.argv[2], each=each, restarts=restarts, storage=storage).fit()
