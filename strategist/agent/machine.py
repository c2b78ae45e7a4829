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
    """Devices of this machine, which ``gpus: local`` names, and the trials and minutes that the grant has left. ``links``: the
    connection between the devices."""

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
    """Items: problems of this machine, errors first. ``sound``: whether none of them is an error."""

    sound: bool
    findings: int


class NoArguments(Arguments):
    pass


@tool({})
def describe_machine(session: AgentSession, arguments: NoArguments) -> PagedAnswer[MachineAnswer, Never]:
    """Describes this machine (gpus: local): devices, memory, and the trials and minutes that the grant has left."""
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
    """Finds problems of this machine and the installation: torch, drivers, GPUs, memory, disk, limits; not of network ports."""
    items = tuple(finding(item) for item in api.doctor(session.workspace.root) if item.code not in NEEDS_NETWORK)
    return PagedAnswer(head=DiagnosisAnswer(sound=all(item.level != "error" for item in items), findings=len(items)), items=items)
