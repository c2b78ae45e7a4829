"""Jobs: what a scheduler is asked to run on every node of a plan's cluster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.formats.format import Written

PORT = 29500
"""Where the ranks of a job meet on its first node."""

_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,254}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Job:
    """``written`` is run on each of ``nodes``, by its command, in a folder that holds its files. It finds ``MASTER_ADDR``,
    ``MASTER_PORT``, ``RDZV_ENDPOINT``, ``NNODES`` and ``NODE_RANK`` in its environment, besides ``environment``.

    ``image`` is a container's, for schedulers that run those. ``restarts`` are how often a node that fails begins again.
    """

    name: str
    written: Written
    nodes: int
    devices_per_node: int
    kind: str
    restarts: int
    image: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def job(plan: Plan, written: Written, image: str = "") -> Job:
    """The job of an exported plan.

    Raises:
        InputError: the image is no name of one.
    """
    if image and not _IMAGE.fullmatch(image):
        raise InputError(f"--image {image}", "is no image's name", "write e.g. pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime")
    return Job(
        name=f"strategist-{plan.id}", written=written, nodes=plan.cluster.nodes, devices_per_node=plan.cluster.gpus_per_node,
        kind=plan.cluster.device.kind, restarts=plan.candidate.options.max_restarts, image=image,
    )  # fmt: skip
