"""Alternatives in resources, nearest and cheapest first: allowed settings, workload, devices."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from math import ceil

from strategist.alternatives.activation_offload import activation_offload_changes
from strategist.alternatives.change import Change, with_request, with_workload
from strategist.alternatives.convergence import MIN_GAIN, convergence_allowances
from strategist.contract.cluster import MAX_DEVICES, Cluster
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.cost.model_states import model_state_bytes
from strategist.profiles.cluster import resolve_cluster, scaled
from strategist.profiles.heterogeneous_clusters import without_group
from strategist.profiles.situation import Situation, on_cluster, situation
from strategist.units import GIB, show_bytes

MIN_SEQ_LEN = 512
UNLIMITED_BYTES = 1 << 60
SIZES_TRIED = 6
"""Number of cluster sizes tried from the smallest that could hold the model states; then as many powers of two."""

DEVICES_OF_A_NODE = 8
"""Devices of a usual node; a node with fewer is filled up before nodes are added."""

MIN_CONFIDENCE = 0.5
"""Lowest probability of fitting that can be requested."""

LARGE_MEMORY_DEVICE = "H200"
"""A rentable card with much memory, for requests that no number of the requested cards can hold."""


def changes(asked: Situation, best: Plan | None, fits_without_hosts: bool) -> Iterator[Change]:
    """Changes worth trying; those that avoid host memory or shrink model states only if every plan offloads or there is no plan."""
    needs_hosts = not fits_without_hosts and "offload" not in asked.request.fix
    workload = asked.request.workload
    yield from convergence_allowances(asked, best, needs_hosts=needs_hosts)
    yield from _lower_confidence(asked)
    yield from activation_offload_changes(asked, best)
    yield from _without_group(asked)
    if best is not None and not needs_hosts:
        return
    if best is None:
        yield from _more_host_memory(asked)
        yield from _divisible_batch(asked)
    if workload.train == "full" and workload.optimizer == "adamw" and "optimizer" not in asked.request.allow:
        yield _workload(asked, "8-bit optimizer states", ("--optimizer", "adamw8bit"), optimizer="adamw8bit")
    for train, name in (("lora", "LoRA"), ("qlora", "QLoRA (4-bit base weights), adapters")):
        if workload.train == "full" or (workload.train, train) == ("lora", "qlora"):
            yield _workload(asked, name, ("--train", train), train=train)
    if best is None and workload.seq_len > MIN_SEQ_LEN:
        yield _shorter(asked)
    yield _larger(asked)


def last_resorts(asked: Situation) -> Iterator[Change]:
    """Changes for a request that none of ``changes`` makes fit: a card with more memory, then also a 4-bit base."""
    yield _roomier(asked)
    if asked.request.workload.train != "qlora":
        yield _roomier(with_workload(asked, train="qlora"), ("--train", "qlora"), ", 4-bit base weights")


def _lower_confidence(asked: Situation) -> Iterator[Change]:
    """A plan that fits with a probability of one half, if that is faster or nothing else fits."""
    if asked.request.confidence > MIN_CONFIDENCE:
        yield Change(
            situations=iter([with_request(asked, confidence=MIN_CONFIDENCE)]),
            title=lambda _: "a plan that fits as likely as not",
            flags=lambda *_: ("--confidence", str(MIN_CONFIDENCE)),
            note="try it with plan --prove, or a few steps of run, before a long job",
            gain=MIN_GAIN,
        )


def _without_group(asked: Situation) -> Iterator[Change]:
    """The cluster without one of its groups of nodes, if the others are faster alone."""
    for group in asked.cluster.groups:
        if group.nodes < asked.cluster.nodes:
            devices = f"{group.nodes * asked.cluster.gpus_per_node} x {group.device.name}"
            yield Change(
                situations=iter([on_cluster(asked, without_group(asked.cluster, group))]),
                title=lambda _, devices=devices: f"without the {devices}",  # type: ignore[misc]
                flags=lambda *_: (),
                note="the others are faster alone: leave that group out of the cluster file",
                gain=1.0,
            )


def _workload(asked: Situation, name: str, flags: tuple[str, ...], **change: str) -> Change:
    rank = f" of rank {asked.request.workload.lora_rank}" if "train" in change else ""
    return Change(
        situations=iter([with_workload(asked, **change)]),
        title=lambda _: name + rank,
        flags=lambda *_: flags,
        note="trains adapters; the base stays as it is" if rank else "moments in 8 bits instead of 32",
        changes_convergence=True,
    )


def _more_host_memory(asked: Situation) -> Iterator[Change]:
    """More host memory, if it is too small."""
    if asked.cluster.host_memory_bytes is None:
        return
    roomy = situation(replace(asked.request, host_memory_bytes=UNLIMITED_BYTES))

    def resolved(_: Situation, plan: Plan) -> Situation:
        return situation(replace(asked.request, host_memory_bytes=_needed_gib(plan) * GIB))

    yield Change(
        situations=iter([roomy]),
        title=lambda _: "more host memory",
        flags=lambda _, plan: ("--host-memory", f"{_needed_gib(plan)}GiB"),
        note=f"the nodes have {show_bytes(asked.cluster.host_memory_bytes)} each",
        resolve=resolved,
    )


def _divisible_batch(asked: Situation) -> Iterator[Change]:
    """The nearest global batch that is a multiple of the devices, if the requested one is not: data parallelism could not use
    them all.
    """
    workload, devices = asked.request.workload, asked.cluster.devices
    if workload.global_batch % devices == 0:
        return
    batch = devices * max(1, round(workload.global_batch / devices))
    yield Change(
        situations=iter([with_workload(asked, global_batch=batch)]),
        title=lambda _: f"{batch} sequences a step, which {devices} devices divide",
        flags=lambda *_: ("--global-batch", str(batch)),
        note=f"data parallelism cannot share {workload.global_batch} evenly",
        changes_convergence=True,
    )


def _needed_gib(plan: Plan) -> int:
    return ceil(plan.estimate.host_memory_bytes_per_node / GIB)


def _shorter(asked: Situation) -> Change:
    """Halved sequences, with as many tokens per step."""
    workload = asked.request.workload

    def halved() -> Iterator[Situation]:
        length, batch = workload.seq_len, workload.global_batch
        while length // 2 >= MIN_SEQ_LEN and length % 2 == 0:
            length, batch = length // 2, batch * 2
            yield with_workload(asked, seq_len=length, global_batch=batch)

    return Change(
        situations=halved(),
        title=lambda found: f"sequences of {found.request.workload.seq_len} tokens",
        flags=lambda found, _: _length_flags(found.request.workload),
        note="as many tokens a step",
        changes_convergence=True,
    )


def _length_flags(workload: Workload) -> tuple[str, ...]:
    return ("--seq-len", str(workload.seq_len), "--global-batch", str(workload.global_batch))


def _larger(asked: Situation) -> Change:
    """The smallest cluster of the same device, from the least that could hold the model states, on which nothing must be
    offloaded.
    """
    device = asked.cluster.device.name
    named = _by_name(asked.request.gpus)
    return Change(
        situations=_on(asked, asked.cluster),
        title=lambda found: f"{found.cluster.devices} x {device}{_offloading(found)}",
        flags=lambda found, _: _cluster_flags(asked, found) if named else (),
        note="the smallest cluster of this card that was found to hold it",
    )


def _roomier(asked: Situation, flags: tuple[str, ...] = (), also: str = "") -> Change:
    """A card with more memory, from one whole node on."""
    return Change(
        situations=_on(asked, resolve_cluster(f"{DEVICES_OF_A_NODE}x{LARGE_MEMORY_DEVICE}")),
        title=lambda found: f"{found.cluster.devices} x {found.cluster.device.name}{_offloading(found)}{also}",
        flags=lambda found, _: (*flags, *_cluster_flags(asked, found)),
        note="no number of the card asked for was found to hold it",
        changes_convergence=bool(flags),
    )


def _offloading(found: Situation) -> str:
    return ", nothing offloaded" if found.request.fix["offload"] == "none" else ""


def _cluster_flags(asked: Situation, found: Situation) -> tuple[str, ...]:
    kept = () if found.request.fix == asked.request.fix else ("--fix", "offload=none")
    return ("--gpus", found.request.gpus, *kept)


def _on(asked: Situation, cluster: Cluster) -> Iterator[Situation]:
    """The request on growing clusters of that kind, without offload unless it is fixed."""
    request = replace(asked.request, fix={"offload": "none", **asked.request.fix})
    for size in _sizes(cluster, model_state_bytes(asked.model, request.workload)):
        sized = replace(request, gpus=size.name)
        if _by_name(asked.request.gpus) or cluster is not asked.cluster:
            yield replace(situation(sized), model=asked.model)
        else:
            yield replace(asked, cluster=size, request=sized)


def _by_name(gpus: str) -> bool:
    """Whether clusters of other sizes have names, too; those of a file or of this machine have not."""
    return gpus.strip().lower() != "local" and not gpus.strip().lower().endswith((".yaml", ".yml"))


def _sizes(cluster: Cluster, state_bytes: float) -> Iterator[Cluster]:
    """Cluster sizes: one node filled up to ``DEVICES_OF_A_NODE`` devices, then more nodes, by a quarter each time, then by
    powers of two.
    """
    least, per_node = ceil(state_bytes / cluster.device.usable_memory_bytes), cluster.gpus_per_node
    if cluster.nodes == 1:
        while per_node * 2 <= DEVICES_OF_A_NODE:
            per_node *= 2
            if per_node >= least:
                yield scaled(cluster, 1, per_node)
    first = max(cluster.nodes + (per_node == cluster.gpus_per_node), ceil(least / per_node))
    for nodes in takewhile(lambda nodes: nodes * per_node <= MAX_DEVICES, _node_counts(first)):
        yield scaled(cluster, nodes, per_node)


def _node_counts(nodes: int) -> Iterator[int]:
    """Numbers of nodes: a quarter more each time, then powers of two."""
    for step in range(SIZES_TRIED):
        yield nodes
        nodes += max(1, nodes // 4) if step else 1
    yield from (1 << exponent for exponent in range(nodes.bit_length(), nodes.bit_length() + SIZES_TRIED))
