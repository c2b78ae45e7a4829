"""Situation: a request with the profiles that it names."""

import hashlib
from dataclasses import dataclass, replace

from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.request import Request
from strategist.errors import InputError
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import ResolvedModel, resolve_model


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is asked, of which model and on which cluster.

    ``notes`` say what was assumed where the request left it open; ``digest`` names the content of model and cluster: SHA-256,
    hexadecimal, first 16 digits.
    """

    request: Request
    model: ModelShape
    cluster: Cluster
    notes: tuple[str, ...]
    digest: str


def situation(request: Request, shape: ModelShape | None = None, cluster: Cluster | None = None) -> Situation:
    """The situation of a request, its model and GPUs resolved where no ``shape`` and no ``cluster`` is given for them.

    Raises:
        InputError, FileError: the model or the GPUs cannot be resolved.
    """
    resolved = ResolvedModel(shape=shape) if shape is not None else resolve_model(request.model)
    if cluster is None:
        cluster = resolve_cluster(request.gpus, request.host_memory_bytes)
    elif request.host_memory_bytes is not None:
        cluster = replace(cluster, host_memory_bytes=request.host_memory_bytes)
    request, lacking = _computable(request, cluster)
    cluster = _as_said(cluster, request)
    notes = ((resolved.note,) if resolved.note else ()) + cluster.assumed + lacking
    return Situation(request=request, model=resolved.shape, cluster=cluster, notes=notes, digest=_digest(resolved.shape, cluster))


def _computable(request: Request, cluster: Cluster) -> tuple[Request, tuple[str, ...]]:
    """The request in a type that the device multiplies, and what is to be said of that: before Ampere there is no bf16.

    Raises:
        InputError: all is to be in bf16, parameters and optimizer included, which fp16 cannot replace.
    """
    workload, device = request.workload, cluster.device
    if workload.compute_dtype != "bf16" or "bf16" in device.peak_flops or "fp16" not in device.peak_flops:
        return request, ()
    if workload.precision != "bf16":
        law = f"{device.name} does not multiply bf16"
        raise InputError(f"--precision {workload.precision}", law, "write --precision fp16 or fp32")
    note = f"{device.name} does not multiply bf16: this is planned in fp16, with a scaled loss"
    return replace(request, workload=replace(workload, precision="fp16")), (note,)


def _as_said(cluster: Cluster, request: Request) -> Cluster:
    """The cluster for the workload's type, with what the request knows better than its profile."""
    device = cluster.device.of_type(request.workload.compute_dtype, request.workload.seq_len)
    if request.price_per_hour is not None:
        device = replace(device, price_per_hour=request.price_per_hour)
    between = request.node_seconds_between_failures or cluster.node_seconds_between_failures
    return replace(cluster, device=device, node_seconds_between_failures=between)


def situated(asked: Situation, cluster: Cluster) -> Situation:
    """The same question on another cluster."""
    return replace(asked, cluster=cluster, digest=_digest(asked.model, cluster))


def _digest(model: ModelShape, cluster: Cluster) -> str:
    return hashlib.sha256((codec.dumps(model) + codec.dumps(cluster)).encode()).hexdigest()[:16]
