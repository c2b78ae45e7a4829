"""The tool that describes the machine at hand."""

from dataclasses import dataclass
from typing import Any

from strategist import api
from strategist.agent.room import Room
from strategist.agent.sheet import Sheet
from strategist.units import GIB


@dataclass(frozen=True, kw_only=True)
class MachineAnswer:
    """What ``gpus: local`` stands for, and what is left of the grant. ``links`` is what the devices are joined by."""

    devices: int
    device: str
    usable_memory_gib: float
    host_memory_gib: float | None
    links: str
    torch_installed: bool
    assumed: tuple[str, ...]
    trials_left: int
    minutes_left: float


def describe_machine(room: Room, arguments: dict[str, Any]) -> Sheet:
    """What this machine has, and what may be started on it."""
    cluster = api.cluster("local")
    trials, minutes = room.jobs.left
    host = cluster.host_memory_bytes
    return Sheet(
        head=MachineAnswer(
            devices=cluster.devices, device=cluster.device.name,
            usable_memory_gib=round(cluster.device.usable_memory_bytes / GIB, 1),
            host_memory_gib=None if host is None else round(host / GIB, 1), links=cluster.intra.name,
            torch_installed=api.torch_installed(), assumed=cluster.assumed, trials_left=trials, minutes_left=round(minutes, 2),
        )
    )  # fmt: skip
