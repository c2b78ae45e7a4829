"""Situation: a request with the profiles that it names."""

import hashlib
from dataclasses import replace

from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.errors import InputError
from strategist.frozen import frozen
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.profiles.resolved_model import BITSANDBYTES_4_BIT, ResolvedModel


@frozen
class Situation:
    """A request with its model and cluster.

    notes: assumptions where the request leaves something open.
    digest: of the content of model and cluster; the first 16 hexadecimal digits of SHA-256.
    stored_weights: how the model's weights are quantized on disk (``ResolvedModel.stored``). weight_note: what that changes; one of
        the notes, or empty.
    """

    request: Request
    model: ModelShape
    cluster: Cluster
    notes: tuple[str, ...]
    digest: str
    stored_weights: str = ""
    weight_note: str = ""


def situation(request: Request, shape: ModelShape | None = None, cluster: Cluster | None = None) -> Situation:
    """The situation of a request; its model and GPUs are resolved unless ``shape`` and ``cluster`` are given.

    Raises:
        InputError, FileError: the model or the GPUs cannot be resolved.
    """
    resolved = ResolvedModel(shape=shape) if shape is not None else resolve_model(request.model)
    if cluster is None:
        cluster = resolve_cluster(request.gpus, request.host_memory_bytes)
    elif request.host_memory_bytes is not None:
        cluster = replace(cluster, host_memory_bytes=request.host_memory_bytes)
    request, weight_note = _with_stored_weights(request, resolved)
    request, dtype_notes = _with_supported_dtype(request, cluster)
    cluster = _cluster_of_request(cluster, request)
    notes = (*filter(None, (resolved.note, weight_note)), *cluster.assumed, *dtype_notes)
    return Situation(
        request=request,
        model=resolved.shape,
        cluster=cluster,
        notes=notes,
        digest=_digest(resolved.shape, cluster),
        stored_weights=resolved.stored,
        weight_note=weight_note,
    )


def _with_stored_weights(request: Request, resolved: ResolvedModel) -> tuple[Request, str]:
    """The request in the training mode that quantized weights allow, and a note on them; empty without any.

    transformers loads weights as bitsandbytes stored them, whatever the arguments, and trains adapters on them alone
    (trainer_utils.py of transformers 5, ``validate_quantization_for_training``).
    """
    workload = request.workload
    if not resolved.stored or (resolved.stored, workload.train) == (BITSANDBYTES_4_BIT, "qlora"):
        return request, ""
    about = f"stored weights are {resolved.stored}"
    if resolved.stored != BITSANDBYTES_4_BIT:
        return request, f"{about}: they are priced as {'4' if workload.train == 'qlora' else '16'} bits"
    if workload.train == "lora":
        return replace(request, workload=replace(workload, train="qlora")), f"{about}: LoRA on them is QLoRA, which is planned"
    return request, f"{about}, which only adapters can train: 16 bits are planned; --train qlora trains adapters"


def _with_supported_dtype(request: Request, cluster: Cluster) -> tuple[Request, tuple[str, ...]]:
    """The request in a dtype that the device supports, and notes on the change: before Ampere there is no bf16.

    Raises:
        InputError: parameters and optimizer are bf16 as well, which fp16 cannot replace.
    """
    workload, device = request.workload, cluster.device
    if workload.compute_dtype != "bf16" or "bf16" in device.peak_flops or "fp16" not in device.peak_flops:
        return request, ()
    if workload.precision != "bf16":
        law = f"{device.name} does not multiply bf16"
        raise InputError(f"--precision {workload.precision}", law, "write --precision fp16 or fp32")
    note = f"{device.name} does not multiply bf16: this is planned in fp16, with a scaled loss"
    return replace(request, workload=replace(workload, precision="fp16")), (note,)


def _cluster_of_request(cluster: Cluster, request: Request) -> Cluster:
    """The cluster with figures for the workload's dtype, and with the request's price and failure rate."""
    device = cluster.device.of_type(request.workload.compute_dtype, request.workload.seq_len)
    if request.price_per_hour is not None:
        device = replace(device, price_per_hour=request.price_per_hour)
    failure_seconds = request.node_seconds_between_failures or cluster.node_seconds_between_failures
    return replace(cluster, device=device, node_seconds_between_failures=failure_seconds)


def situation_of_plan(plan: Plan, request: Request, cluster: Cluster | None = None) -> Situation:
    """The situation with the plan's own model, and its own cluster unless one is given; names in the request are not resolved."""
    return Situation(request=request, model=plan.model, cluster=cluster or plan.cluster, notes=(), digest=plan.digests.profiles)


def on_cluster(requested: Situation, cluster: Cluster) -> Situation:
    """The same request on another cluster."""
    return replace(requested, cluster=cluster, digest=_digest(requested.model, cluster))


def _digest(model: ModelShape, cluster: Cluster) -> str:
    return hashlib.sha256((codec.dumps(model) + codec.dumps(cluster)).encode()).hexdigest()[:16]
