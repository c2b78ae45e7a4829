"""Engines: launchers of a trial's ranks, on this machine or on others."""

import json
import shlex
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.executors.host_agents import RAY, TOKEN, Order
from strategist.frozen import frozen

SSH = "ssh -o BatchMode=yes {host} {command}"


class Engine:
    """Launcher of a trial's ranks.

    elsewhere: ranks may run on other machines, which must share the trial's folder.
    passes: prefixes of environment variables that the launcher needs in addition to those that a trial gets.
    queues: ranks may have to wait for machines before they start.
    """

    elsewhere: ClassVar[bool] = True
    queues: ClassVar[bool] = False
    passes: ClassVar[tuple[str, ...]] = ()

    def nodes(self, plan: Plan) -> int:
        """Number of machines that the plan's ranks run on."""
        return plan.cluster.nodes

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """The command that starts the plan's ranks; the command of a rank follows it.

        Args:
            restarts: how often all ranks are restarted when one fails.
            each: the command that follows runs once on each machine, and starts the ranks there itself.

        Raises:
            InputError: the plan does not match these machines.
        """
        raise NotImplementedError


@frozen
class Torchrun(Engine):
    """Launcher torchrun: all ranks on this machine."""

    elsewhere = False

    def nodes(self, plan: Plan) -> int:
        """See :class:`Engine`."""
        return 1

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        return () if each else torchrun(plan.candidate.layout.world_size, restarts)


TORCHRUN = Torchrun()


@frozen
class Hosts(Engine):
    """The same number of ranks on each of several hosts, started through a remote shell.

    names: hosts by the names that the remote shell knows, each optionally followed by ``=`` and its address.
    remote: command line of the remote shell, with {host} and {command}.
    """

    names: tuple[str, ...]
    remote: str = SSH

    def __post_init__(self) -> None:
        host_names = [name.partition("=")[0] for name in self.names]
        if len(set(host_names)) < len(host_names) or not all(host_names):
            raise InputError(
                f"--hosts {','.join(self.names)}", "each host is named once", "write e.g. --hosts node1,node2=10.0.0.2"
            )
        if "{command}" not in self.remote or "{host}" not in self.remote:
            raise InputError(f"--remote-shell {self.remote}", "has no place for {host} and {command}", f"write e.g. '{SSH}'")

    def nodes(self, plan: Plan) -> int:
        """See :class:`Engine`."""
        return len(self.names)

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        order = _order(plan, folder, len(self.names), restarts, hosts=self.names, remote=self.remote, each=each)
        return order.words("start")


@frozen
class Slurm(Engine):
    """Nodes of a Slurm cluster: those of the allocation of this process; without one, an allocation for each trial.

    options: further options of srun, such as ``--partition=gpu``.
    """

    queues = True
    passes = (TOKEN,)
    options: str = ""

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        nodes, gpus = plan.cluster.nodes, plan.cluster.gpus_per_node
        srun_options = [f"--nodes={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--job-name=strategist"]
        if plan.cluster.device.kind == "cuda":
            srun_options.append(f"--gpus-per-node={gpus}")
        try:
            user_options = shlex.split(self.options)
        except ValueError as error:
            raise InputError(f"--slurm {self.options}", f"are not shell words: {error}", "close what is quoted") from None
        return _order(plan, folder, nodes, restarts, srun=(*srun_options, *user_options), each=each).words("start")


@frozen
class Ray(Engine):
    """Nodes of a Ray cluster that this machine belongs to: as many nodes and devices as the plan has.

    address: address of the cluster, as Ray accepts it.
    """

    queues = True
    passes = (RAY,)
    address: str = "auto"

    def __post_init__(self) -> None:
        if "://" in self.address or not self.address:
            law = "is not the address of a cluster that this machine is a node of"
            raise InputError(f"--ray {self.address}", law, "start this on one of its nodes, with --ray auto or HOST:PORT")

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        if find_spec("ray") is None:
            raise InputError("--engine ray", "ray is not installed here", "pip install 'torch-strategist[ray]'")
        order = _order(plan, folder, plan.cluster.nodes, restarts, each=each)
        resource = "GPU" if plan.cluster.device.kind == "cuda" else "CPU"
        return (sys.executable, "-m", "strategist.executors.ray_launcher", self.address, resource, json.dumps(asdict(order)))


def torchrun(ranks: int, restarts: int = 0) -> tuple[str, ...]:
    """The launcher for one machine, for any command. A trial has no restarts: a second attempt is a new launch.

    Its rendezvous is a file: with ``--standalone`` it would be a store that listens on every interface.
    """
    return (
        sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-conf=store_type=file",
        "--local-addr=127.0.0.1", f"--max-restarts={restarts}", f"--nproc-per-node={ranks}", "--no-python",
    )  # fmt: skip


def _order(plan: Plan, folder: Path, nodes: int, restarts: int, **transport: Any) -> Order:
    """The order that tells agents what to start."""
    ranks = plan.candidate.layout.world_size
    if ranks % nodes:
        raise InputError(f"{ranks} ranks on {nodes} hosts", "are not equally many on each", "plan for these hosts")
    return Order(
        folder=str(folder), nodes=nodes, ranks_per_node=ranks // nodes, restarts=restarts,
        rendezvous=plan.candidate.options.rendezvous, **transport,
    )  # fmt: skip


def hosts(names: str, shell: str = "") -> Hosts:
    """Hosts from their names, separated by commas; without a shell, they are reached by ``ssh``.

    Raises:
        InputError: a name is empty or occurs twice, or the shell lacks {host} or {command}.
    """
    return Hosts(names=tuple(name.strip() for name in names.split(",")), remote=shell or SSH)
