"""Tools for the local machine: its hardware, and problems found on it."""

from typing import Never

from strategist import api
from strategist.agent.pagination import PagedAnswer
from strategist.agent.plan_summary import rounded
from strategist.agent.schema import Arguments
from strategist.agent.session import AgentSession
from strategist.agent.shared_arguments import WaitArguments
from strategist.agent.tool import Finding, finding, tool
from strategist.frozen import frozen
from strategist.units import GIB

NEEDS_NETWORK = ("ports", "port-taken")
"""Findings that need the network, which calls of agents cannot use."""


@frozen
class MachineAnswer:
    """Devices of this machine (``gpus: local``), the ``links`` between them, and the rest of the grant."""

    devices: int
    device: str
    usable_memory_gib: float
    host_memory_gib: float | None
    links: str
    torch_installed: bool
    assumed: tuple[str, ...]
    trials_left: int
    minutes_left: float


@frozen
class DiagnosisAnswer:
    """Problems of this machine: the items, errors first. ``sound``: there are no errors."""

    sound: bool
    findings: int


class NoArguments(Arguments):
    pass


@tool({})
def describe_machine(session: AgentSession, arguments: NoArguments) -> PagedAnswer[MachineAnswer, Never]:
    """Devices and memory of this machine, which gpus: local stands for, and what is left of the grant for trials."""
    cluster = api.cluster("local")
    host = cluster.host_memory_bytes
    return PagedAnswer(
        head=MachineAnswer(
            devices=cluster.devices, device=cluster.device.name,
            usable_memory_gib=round(cluster.device.usable_memory_bytes / GIB, 1),
            host_memory_gib=None if host is None else round(host / GIB, 1), links=cluster.intra.name,
            torch_installed=api.torch_installed(), assumed=cluster.assumed, trials_left=session.trials,
            minutes_left=rounded(session.minutes),
        )
    )  # fmt: skip


@tool({}, long=True)
def diagnose(session: AgentSession, arguments: WaitArguments) -> PagedAnswer[DiagnosisAnswer, Finding]:
    """Problems of this machine or the installation: torch, drivers, GPUs, memory, disk, limits. Ports are not examined."""
    items = tuple(finding(item) for item in api.doctor(session.workspace.root) if item.code not in NEEDS_NETWORK)
    return PagedAnswer(head=DiagnosisAnswer(sound=all(item.level != "error" for item in items), findings=len(items)), items=items)
