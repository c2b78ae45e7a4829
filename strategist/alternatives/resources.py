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
from strategist.profiles.situation import Situation, on_cluster, situation as resolve_situation
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


def changes(situation: Situation, best: Plan | None, fits_without_hosts: bool) -> Iterator[Change]:
    """Changes worth trying; those that avoid host memory or shrink model states only if every plan offloads or there is no plan."""
    needs_hosts = not fits_without_hosts and "offload" not in situation.request.fix
    workload = situation.request.workload
    yield from convergence_allowances(situation, best, needs_hosts=needs_hosts)
    yield from _lower_confidence(situation)
    yield from activation_offload_changes(situation, best)
    yield from _without_group(situation)
    if best is not None and not needs_hosts:
        return
    if best is None:
        yield from _more_host_memory(situation)
        yield from _divisible_batch(situation)
    if workload.train == "full" and workload.optimizer == "adamw" and "optimizer" not in situation.request.allow:
        yield _workload(situation, "8-bit optimizer states", ("--optimizer", "adamw8bit"), optimizer="adamw8bit")
    for train, name in (("lora", "LoRA"), ("qlora", "QLoRA (4-bit base weights), adapters")):
        if workload.train == "full" or (workload.train, train) == ("lora", "qlora"):
            yield _workload(situation, name, ("--train", train), train=train)
    if best is None and workload.seq_len > MIN_SEQ_LEN:
        yield _shorter_sequences(situation)
    yield _larger_cluster(situation)


def last_resorts(situation: Situation) -> Iterator[Change]:
    """Changes for a request that none of ``changes`` makes fit: a card with more memory, then also a 4-bit base."""
    yield _large_memory_cluster(situation)
    if situation.request.workload.train != "qlora":
        yield _large_memory_cluster(with_workload(situation, train="qlora"), ("--train", "qlora"), ", 4-bit base weights")


def _lower_confidence(situation: Situation) -> Iterator[Change]:
    """A plan that fits with a probability of one half, if that is faster or nothing else fits."""
    if situation.request.confidence > MIN_CONFIDENCE:
        yield Change(
            situations=iter([with_request(situation, confidence=MIN_CONFIDENCE)]),
            title=lambda _: "a plan that fits as likely as not",
            flags=lambda *_: ("--confidence", str(MIN_CONFIDENCE)),
            note="try it with plan --prove, or a few steps of run, before a long job",
            gain=MIN_GAIN,
        )


def _without_group(situation: Situation) -> Iterator[Change]:
    """The cluster without one of its groups of nodes, if the others are faster alone."""
    for group in situation.cluster.groups:
        if group.nodes < situation.cluster.nodes:
            devices = f"{group.nodes * situation.cluster.gpus_per_node} x {group.device.name}"
            yield Change(
                situations=iter([on_cluster(situation, without_group(situation.cluster, group))]),
                title=lambda _, devices=devices: f"without the {devices}",  # type: ignore[misc]
                flags=lambda *_: (),
                note="the others are faster alone: leave that group out of the cluster file",
                gain=1.0,
            )


def _workload(situation: Situation, name: str, flags: tuple[str, ...], **change: str) -> Change:
    rank = f" of rank {situation.request.workload.lora_rank}" if "train" in change else ""
    return Change(
        situations=iter([with_workload(situation, **change)]),
        title=lambda _: name + rank,
        flags=lambda *_: flags,
        note="trains adapters; the base stays as it is" if rank else "moments in 8 bits instead of 32",
        changes_convergence=True,
    )


def _more_host_memory(situation: Situation) -> Iterator[Change]:
    """More host memory, if it is too small."""
    if situation.cluster.host_memory_bytes is None:
        return
    unlimited = resolve_situation(replace(situation.request, host_memory_bytes=UNLIMITED_BYTES))

    def with_needed_memory(_: Situation, plan: Plan) -> Situation:
        return resolve_situation(replace(situation.request, host_memory_bytes=_needed_gib(plan) * GIB))

    yield Change(
        situations=iter([unlimited]),
        title=lambda _: "more host memory",
        flags=lambda _, plan: ("--host-memory", f"{_needed_gib(plan)}GiB"),
        note=f"the nodes have {show_bytes(situation.cluster.host_memory_bytes)} each",
        resolve=with_needed_memory,
    )


def _divisible_batch(situation: Situation) -> Iterator[Change]:
    """The nearest global batch that is a multiple of the devices, if the requested one is not: data parallelism could not use
    them all.
    """
    workload, devices = situation.request.workload, situation.cluster.devices
    if workload.global_batch % devices == 0:
        return
    batch = devices * max(1, round(workload.global_batch / devices))
    yield Change(
        situations=iter([with_workload(situation, global_batch=batch)]),
        title=lambda _: f"{batch} sequences a step, which {devices} devices divide",
        flags=lambda *_: ("--global-batch", str(batch)),
        note=f"data parallelism cannot share {workload.global_batch} evenly",
        changes_convergence=True,
    )


def _needed_gib(plan: Plan) -> int:
    return ceil(plan.estimate.host_memory_bytes_per_node / GIB)


def _shorter_sequences(situation: Situation) -> Change:
    """Halved sequences, with as many tokens per step."""
    workload = situation.request.workload

    def halved_lengths() -> Iterator[Situation]:
        length, batch = workload.seq_len, workload.global_batch
        while length // 2 >= MIN_SEQ_LEN and length % 2 == 0:
            length, batch = length // 2, batch * 2
            yield with_workload(situation, seq_len=length, global_batch=batch)

    return Change(
        situations=halved_lengths(),
        title=lambda found: f"sequences of {found.request.workload.seq_len} tokens",
        flags=lambda found, _: _length_flags(found.request.workload),
        note="as many tokens a step",
        changes_convergence=True,
    )


def _length_flags(workload: Workload) -> tuple[str, ...]:
    return ("--seq-len", str(workload.seq_len), "--global-batch", str(workload.global_batch))


def _larger_cluster(situation: Situation) -> Change:
    """The smallest cluster of the same device, from the least that could hold the model states, on which nothing must be
    offloaded.
    """
    device = situation.cluster.device.name
    has_name = _is_named_cluster(situation.request.gpus)
    return Change(
        situations=_on_larger_clusters(situation, situation.cluster),
        title=lambda found: f"{found.cluster.devices} x {device}{_offload_note(found)}",
        flags=lambda found, _: _cluster_flags(situation, found) if has_name else (),
        note="the smallest cluster of this card that was found to hold it",
    )


def _large_memory_cluster(situation: Situation, flags: tuple[str, ...] = (), title_suffix: str = "") -> Change:
    """A card with more memory, from one whole node on."""
    return Change(
        situations=_on_larger_clusters(situation, resolve_cluster(f"{DEVICES_OF_A_NODE}x{LARGE_MEMORY_DEVICE}")),
        title=lambda found: f"{found.cluster.devices} x {found.cluster.device.name}{_offload_note(found)}{title_suffix}",
        flags=lambda found, _: (*flags, *_cluster_flags(situation, found)),
        note="no number of the card asked for was found to hold it",
        changes_convergence=bool(flags),
    )


def _offload_note(found: Situation) -> str:
    return ", nothing offloaded" if found.request.fix["offload"] == "none" else ""


def _cluster_flags(situation: Situation, found: Situation) -> tuple[str, ...]:
    offload_flags = () if found.request.fix == situation.request.fix else ("--fix", "offload=none")
    return ("--gpus", found.request.gpus, *offload_flags)


def _on_larger_clusters(situation: Situation, cluster: Cluster) -> Iterator[Situation]:
    """The request on growing clusters of that kind, without offload unless it is fixed."""
    request = replace(situation.request, fix={"offload": "none", **situation.request.fix})
    for size in _sizes(cluster, model_state_bytes(situation.model, request.workload)):
        sized_request = replace(request, gpus=size.name)
        if _is_named_cluster(situation.request.gpus) or cluster is not situation.cluster:
            yield replace(resolve_situation(sized_request), model=situation.model)
        else:
            yield replace(situation, cluster=size, request=sized_request)


def _is_named_cluster(gpus: str) -> bool:
    """Whether clusters of other sizes have names, too; those of a file or of this machine have not."""
    return gpus.strip().lower() != "local" and not gpus.strip().lower().endswith((".yaml", ".yml"))


def _sizes(cluster: Cluster, state_bytes: float) -> Iterator[Cluster]:
    """Cluster sizes: one node filled up to ``DEVICES_OF_A_NODE`` devices, then more nodes, by a quarter each time, then by
    powers of two.
    """
    min_devices, per_node = ceil(state_bytes / cluster.device.usable_memory_bytes), cluster.gpus_per_node
    if cluster.nodes == 1:
        while per_node * 2 <= DEVICES_OF_A_NODE:
            per_node *= 2
            if per_node >= min_devices:
                yield scaled(cluster, 1, per_node)
    first = max(cluster.nodes + (per_node == cluster.gpus_per_node), ceil(min_devices / per_node))
    for nodes in takewhile(lambda nodes: nodes * per_node <= MAX_DEVICES, _node_counts(first)):
        yield scaled(cluster, nodes, per_node)


def _node_counts(nodes: int) -> Iterator[int]:
    """Numbers of nodes: a quarter more each time, then powers of two."""
    for step in range(SIZES_TRIED):
        yield nodes
        nodes += max(1, nodes // 4) if step else 1
    yield from (1 << exponent for exponent in range(nodes.bit_length(), nodes.bit_length() + SIZES_TRIED))
