"""Jobs: what a scheduler is asked to run on every node of a plan's cluster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.formats.format import Written

Texts = Mapping[str, str]
OWN = ("plan", "memory")
"""Volumes of every pod: what was exported, and shared memory."""

NOTHING: Texts = MappingProxyType({})

PORT = 29500
"""Where the ranks of a job meet on its first node."""

_NAME, _VARIABLE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"), re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_RESOURCE = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9][\w.-]{0,62}", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,254}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Job:
    """``written`` is run on each of ``nodes``, by its command, in a folder that holds its files. It finds ``MASTER_ADDR``,
    ``MASTER_PORT``, ``RDZV_ENDPOINT``, ``NNODES`` and ``NODE_RANK`` in its environment, besides ``environment``.

    ``image`` is a container's, for schedulers that run those, and ``volumes`` are claims with the folder where each is mounted,
    ``resources`` what a node's container gets beside GPUs, such as network adapters, with how many.
    ``restarts`` are how often a node that fails begins again.
    """

    name: str
    written: Written
    nodes: int
    devices_per_node: int
    kind: str
    restarts: int
    image: str = ""
    environment: Texts = field(default_factory=dict)
    volumes: Texts = field(default_factory=dict)
    resources: Texts = field(default_factory=dict)


def job(
    plan: Plan,
    written: Written,
    image: str = "",
    volumes: Texts = NOTHING,
    environment: Texts = NOTHING,
    resources: Texts = NOTHING,
) -> Job:
    """The job of an exported plan.

    Raises:
        InputError: the image is no name of one, a claim, a variable or a resource has none, or a folder is not absolute.
    """
    if image and not _IMAGE.fullmatch(image):
        raise InputError(f"--image {image}", "is no image's name", "write e.g. pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime")
    for claim, place in volumes.items():
        if not _NAME.fullmatch(claim) or not place.startswith("/"):
            raise InputError(f"--volume {claim}={place}", "is no claim and its folder", "write e.g. --volume datasets=/data")
        if claim in OWN:
            raise InputError(f"--volume {claim}={place}", f"{' and '.join(OWN)} are the job's own", "name the claim otherwise")
    for name in environment:
        if not _VARIABLE.fullmatch(name):
            raise InputError(f"--env {name}", "is no variable's name", "write e.g. --env HF_HOME=/data/hf")
    for name, count in resources.items():
        if not _RESOURCE.fullmatch(name) or not re.fullmatch(r"[1-9][0-9]{0,3}", count, re.ASCII):
            law = "is no resource of Kubernetes and its count"
            raise InputError(f"--resource {name}={count}", law, "write e.g. --resource vpc.amazonaws.com/efa=32")
    return Job(
        name=f"strategist-{plan.id}", written=written, nodes=plan.cluster.nodes, devices_per_node=plan.cluster.gpus_per_node,
        kind=plan.cluster.device.kind, restarts=plan.candidate.options.max_restarts, image=image,
        volumes=volumes, environment=environment, resources=resources,
    )  # fmt: skip
