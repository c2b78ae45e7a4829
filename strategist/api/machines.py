"""API of machine profiles: measured on this machine, or read from logs of nccl-tests or from the system. Exported by
``strategist.api``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from strategist.files import outputs
from strategist.paths import data_dir

if TYPE_CHECKING:
    from strategist.contract.cluster import Cluster
    from strategist.contract.machine import MachineRecord
    from strategist.contract.topology import Topology
    from strategist.executors.executor import OnEvent


def profile_machine(
    path: str | Path | None = None,
    *,
    ranks: int | None = None,
    cpu: bool = False,
    on_event: "OnEvent | None" = None,
    force: bool = False,
) -> "tuple[Path, MachineRecord]":
    """Measures this machine with one rank per GPU (or CPU core), and writes a cluster file and, beside it, all samples as JSON.

    Args:
        path: the cluster file; None for the place from which ``--gpus local`` reads it.
        ranks: number of ranks; None for one per GPU, or per core on a CPU.
        cpu: measures the CPU even if there are GPUs.
        on_event: called with the progress.
        force: overwrites a file that is not a measured machine.

    Raises:
        InputError: the machine cannot be measured.
        FileError: the file cannot be written.
    """
    from strategist.executors.machine_profile import measure_machine
    from strategist.profiles import local_machine
    from strategist.profiles.measured_cluster import check_cluster_path, write

    target = local_machine.profile_path() if path is None else Path(path)
    if path is None:
        outputs.make_folder(target.parent)
    check_cluster_path(target, force=force)
    gpus = () if cpu else local_machine.gpu_names()
    record = measure_machine("cuda" if gpus else "cpu", ranks or len(gpus) or local_machine.cores(), on_event)
    record = replace(record, topology=local_machine.topology() if gpus else "")
    write(record, target, force=force)
    return target, record


def profile_links(logs: "Sequence[str | Path]", path: str | Path, *, force: bool = False) -> "tuple[Path, Cluster]":
    """Writes a cluster file with link rates from logs of nccl-tests; everything else is that of the device's usual node.

    Args:
        logs: outputs of all_reduce_perf, all_gather_perf, reduce_scatter_perf or sendrecv_perf, measured on one node, on
            several, or both.

    Raises:
        InputError, FileError: a log is none of these, the logs do not belong together, or the file cannot be written.
    """
    from strategist.profiles import nccl_tests
    from strategist.profiles.cluster import resolve_cluster

    target = Path(path)
    nccl_tests.write([Path(log) for log in logs], target, force=force)
    return target, resolve_cluster(str(target))


def readable_places() -> "tuple[Path, ...]":
    """Files and folders that any call may read: shipped cards and profiles, the Hugging Face cache, and this machine's
    profile.
    """
    from strategist.profiles import huggingface, local_machine

    return data_dir("cards"), data_dir("profiles"), huggingface.hub_cache(), local_machine.profile_path()


def topology(path: str | Path | None = None, *, nodes: int = 1, force: bool = False) -> "Topology":
    """Hardware and topology of this machine. With a ``path``, also writes a cluster file of ``nodes`` such machines.

    Raises:
        InputError: nvidia-smi does not respond, or the hardware cannot be described by a cluster file.
        FileError: the file exists and was not written by this function, or it cannot be written.
    """
    from strategist.profiles import topology as this_node

    detected = this_node.read()
    if path:
        this_node.write(detected, nodes, Path(path), force=force)
    return detected
