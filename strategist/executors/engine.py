"""Engines: launchers of a trial's ranks, local or remote."""

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.executors.host_agents import RAY, TOKEN, Order

SSH = "ssh -o BatchMode=yes {host} {command}"


class Engine:
    """``elsewhere`` says that ranks may run on other machines, with which the trial's folder is shared; ``queues`` that they may
    have to wait for machines before they start; ``passes`` how the names of variables begin that the launcher needs, beside those
    that a trial may see."""

    elsewhere: ClassVar[bool] = True
    queues: ClassVar[bool] = False
    passes: ClassVar[tuple[str, ...]] = ()

    def nodes(self, plan: Plan) -> int:
        """On how many machines the plan's ranks run."""
        return plan.cluster.nodes

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """The command that starts the plan's ranks of the command after it, and again so often when one fails.

        Args:
            each: the command after it is run once on each machine, and starts the ranks there by itself.

        Raises:
            InputError: the plan is none for these machines.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Torchrun(Engine):
    """All ranks on this machine."""

    elsewhere = False

    def nodes(self, plan: Plan) -> int:
        """See :class:`Engine`."""
        return 1

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        return () if each else torchrun(plan.candidate.layout.world_size, restarts)


@dataclass(frozen=True, kw_only=True)
class Hosts(Engine):
    """Equally many ranks on each of several hosts. ``names`` are what the remote shell knows hosts by, each with its address behind
    ``=`` where that is another; ``remote`` runs a command on one: words, with {host} and {command}."""

    names: tuple[str, ...]
    remote: str = SSH

    def __post_init__(self) -> None:
        known = [name.partition("=")[0] for name in self.names]
        if len(set(known)) < len(known) or not all(known):
            raise InputError(f"--hosts {','.join(self.names)}", "names each host once", "write e.g. --hosts node1,node2=10.0.0.2")
        if "{command}" not in self.remote or "{host}" not in self.remote:
            raise InputError(f"--remote-shell {self.remote}", "has no place for {host} and {command}", f"write e.g. '{SSH}'")

    def nodes(self, plan: Plan) -> int:
        """See :class:`Engine`."""
        return len(self.names)

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        order = _order(plan, folder, len(self.names), restarts, hosts=self.names, remote=self.remote, each=each)
        return order.words("start")


@dataclass(frozen=True, kw_only=True)
class Slurm(Engine):
    """Nodes of a Slurm cluster: those of the allocation that this process is in, else of one for each trial. ``options`` are more
    of srun's own, such as ``--partition=gpu``."""

    queues = True
    passes = (TOKEN,)
    options: str = ""

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0, *, each: bool = False) -> tuple[str, ...]:
        """See :class:`Engine`."""
        nodes, gpus = plan.cluster.nodes, plan.cluster.gpus_per_node
        wanted = [f"--nodes={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--job-name=strategist"]
        if plan.cluster.device.kind == "cuda":
            wanted.append(f"--gpus-per-node={gpus}")
        try:
            more = shlex.split(self.options)
        except ValueError as error:
            raise InputError(f"--slurm {self.options}", f"are no words: {error}", "close what is quoted") from None
        return _order(plan, folder, nodes, restarts, srun=(*wanted, *more), each=each).words("start")


@dataclass(frozen=True, kw_only=True)
class Ray(Engine):
    """Nodes of a Ray cluster, of which this machine is one: as many as the plan has, with as many of their devices. ``address`` is
    the cluster's, as Ray takes it."""

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
    """The launcher of one machine, for commands of any kind. A trial has no restarts: a second attempt is a fresh launch.

    Its own rendezvous is a file: with ``--standalone`` it would be a store that listens on every interface.
    """
    return (
        sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-conf=store_type=file",
        "--local-addr=127.0.0.1", f"--max-restarts={restarts}", f"--nproc-per-node={ranks}", "--no-python",
    )  # fmt: skip


def _order(plan: Plan, folder: Path, nodes: int, restarts: int, **where: Any) -> Order:
    """What agents are to start."""
    ranks = plan.candidate.layout.world_size
    if ranks % nodes:
        raise InputError(f"{ranks} ranks on {nodes} hosts", "are not equally many on each", "plan for these hosts")
    return Order(
        folder=str(folder), nodes=nodes, ranks_per_node=ranks // nodes, restarts=restarts,
        rendezvous=plan.candidate.options.rendezvous, **where,
    )  # fmt: skip


def hosts(names: str, shell: str = "") -> Hosts:
    """Hosts as people write them, with commas between; ``ssh`` gets there where no shell is named.

    Raises:
        InputError: a name is none or stands twice, or the shell has no place for host and command.
    """
    return Hosts(names=tuple(name.strip() for name in names.split(",")), remote=shell or SSH)
