"""API of machine profiles: measured here, read from nccl-tests, or read from the system. Exported by ``strategist.api``."""

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
    """Measures this machine, one rank a GPU or a core, and writes the cluster file, with all samples as JSON beside it.

    Args:
        path: where to; None for where ``--gpus local`` looks for it.
        cpu: measures the CPU where there are GPUs, too.
        force: replaces a file that is no measured machine.

    Raises:
        InputError: the machine cannot be measured.
        FileError: the place cannot be written.
    """
    from strategist.executors.machine_profile import measure_machine
    from strategist.profiles import local_machine
    from strategist.profiles.measured_cluster import check_place, write

    target = local_machine.profile_path() if path is None else Path(path)
    if path is None:
        outputs.make_folder(target.parent)
    check_place(target, force=force)
    gpus = () if cpu else local_machine.gpu_names()
    record = measure_machine("cuda" if gpus else "cpu", ranks or len(gpus) or local_machine.cores(), on_event)
    record = replace(record, topology=local_machine.topology() if gpus else "")
    write(record, target, force=force)
    return target, record


def profile_links(logs: "Sequence[str | Path]", path: str | Path, *, force: bool = False) -> "tuple[Path, Cluster]":
    """Writes a cluster file whose links are those that logs of nccl-tests show; all else is the device's usual node.

    Args:
        logs: outputs of all_reduce_perf, all_gather_perf, reduce_scatter_perf or sendrecv_perf; of one node, of several, or both.

    Raises:
        InputError, FileError: a log is none of these, they do not belong together, or the place cannot be written.
    """
    from strategist.profiles import nccl_tests
    from strategist.profiles.cluster import resolve_cluster

    target = Path(path)
    nccl_tests.write([Path(log) for log in logs], target, force=force)
    return target, resolve_cluster(str(target))


def readable_places() -> "tuple[Path, ...]":
    """Where use-cases read what no caller names: shipped cards and profiles, the Hub's cache, this machine as it was measured."""
    from strategist.profiles import huggingface, local_machine

    return data_dir("cards"), data_dir("profiles"), huggingface.hub_cache(), local_machine.profile_path()


def topology(path: str | Path | None = None, *, nodes: int = 1, force: bool = False) -> "Topology":
    """Hardware and topology of this machine; with a ``path``, a cluster file of so many ``nodes`` like it is written.

    Raises:
        InputError: nvidia-smi does not answer, or there is nothing that a cluster file could be of.
        FileError: the file is there already and no cluster file of this command, or cannot be written.
    """
    from strategist.profiles import topology as this_node

    found = this_node.read()
    if path:
        this_node.write(found, nodes, Path(path), force=force)
    return found
