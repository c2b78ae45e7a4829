"""Ways: what could be changed about a request, nearest and cheapest first; the planner finds out what each is worth."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from strategist.contract.cluster import Cluster
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.cost.states import model_state_bytes
from strategist.profiles.cluster import scaled
from strategist.profiles.situation import Situation
from strategist.units import GIB, show_bytes

MIN_SEQ_LEN = 512
MORE_SIZES = 6
"""Cluster sizes tried from the least that could hold the state."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change: the situations that it may lead to, first that works wins, and how to say it.

    ``gain`` is the throughput over the best plan's from which on the change is worth naming.
    """

    situations: Iterator[Situation]
    title: Callable[[Situation], str]
    flags: Callable[[Situation, Plan], tuple[str, ...]]
    note: str = ""
    changes_convergence: bool = False
    gain: float = 0.0


def changes(asked: Situation, best: Plan | None) -> Iterator[Change]:
    """What is worth trying: all that avoids the hosts or shrinks the state when the best plan offloads or there is none."""
    offloads = best is not None and best.candidate.knobs.offload != "none"
    workload = asked.request.workload
    if "reduce_dtype" not in asked.request.allow and "reduce_dtype" not in asked.request.fix and best is not None:
        yield _allow(asked)
    if best is not None and not offloads:
        return
    if best is None:
        yield from _bound_by_hosts(asked)
    if "offload" not in asked.request.fix and asked.request.backend == "any":
        yield _streamed(asked)
    if workload.train == "full" and workload.optimizer == "adamw":
        yield _workload(asked, "8-bit optimizer states", ("--optimizer", "adamw8bit"), optimizer="adamw8bit")
    for train, name in (("lora", "LoRA"), ("qlora", "QLoRA, 4-bit base weights")):
        if workload.train == "full" or (workload.train, train) == ("lora", "qlora"):
            yield _workload(asked, name, ("--train", train), train=train)
    if best is None and workload.seq_len > MIN_SEQ_LEN:
        yield _shorter(asked)
    yield _larger(asked)


def _changed(asked: Situation, **request: object) -> Situation:
    return replace(asked, request=replace(asked.request, **request))  # type: ignore[arg-type]


def _workload(asked: Situation, name: str, flags: tuple[str, ...], **change: str) -> Change:
    workload = replace(asked.request.workload, **change)  # type: ignore[arg-type]
    rank = f" of rank {workload.lora_rank}" if "train" in change else ""
    return Change(
        situations=iter([_changed(asked, workload=workload)]),
        title=lambda _: name + rank,
        flags=lambda *_: flags,
        note="trains adapters; the base stays as it is" if rank else "moments in 8 bits instead of 32",
        changes_convergence=True,
    )


def _allow(asked: Situation) -> Change:
    return Change(
        situations=iter([_changed(asked, allow=(*asked.request.allow, "reduce_dtype"))]),
        title=lambda _: "gradients reduced and accumulated in bf16",
        flags=lambda *_: ("--allow", "reduce_dtype"),
        note="half the bytes of every reduction",
        changes_convergence=True,
        gain=1.05,
    )


def _streamed(asked: Situation) -> Change:
    fix = {**asked.request.fix, "offload": "streamed"}
    return Change(
        situations=iter([_changed(asked, fix=fix)]),
        title=lambda _: "whole stages streamed from host memory",
        flags=lambda *_: ("--fix", "offload=streamed"),
        note="needs an executor that deals host-resident, pinned stages to the devices and uses each for many micro-batches",
    )


def _bound_by_hosts(asked: Situation) -> Iterator[Change]:
    """More host memory, where that was said to be too small."""
    if asked.cluster.host_memory_bytes is None:
        return
    roomy = replace(asked, cluster=replace(asked.cluster, host_memory_bytes=None))
    yield Change(
        situations=iter([roomy]),
        title=lambda _: "more host memory",
        flags=lambda _, plan: ("--host-memory", f"{ceil(plan.estimate.host_memory_bytes_per_node / GIB)}GiB"),
        note=f"the nodes were said to have {show_bytes(asked.cluster.host_memory_bytes)} each",
    )


def _shorter(asked: Situation) -> Change:
    """Halved sequences, the tokens of a step kept."""
    workload = asked.request.workload

    def halved() -> Iterator[Situation]:
        length, batch = workload.seq_len, workload.global_batch
        while length // 2 >= MIN_SEQ_LEN and length % 2 == 0:
            length, batch = length // 2, batch * 2
            yield _changed(asked, workload=replace(workload, seq_len=length, global_batch=batch))

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
    """The smallest cluster of the same device, from the least that could hold the state, on which nothing need be offloaded."""
    fix = {**asked.request.fix} if "offload" in asked.request.fix else {**asked.request.fix, "offload": "none"}

    def sizes() -> Iterator[Situation]:
        for cluster in _sizes(asked.cluster, model_state_bytes(asked.model, asked.request.workload)):
            yield replace(asked, cluster=cluster, request=replace(asked.request, fix=fix, gpus=cluster.name))

    device = asked.cluster.device.name
    return Change(
        situations=sizes(),
        title=lambda found: f"{found.cluster.devices} x {device}, nothing offloaded",
        flags=lambda found, _: ("--gpus", found.request.gpus),
        note="the smallest cluster of this card that holds everything on the devices",
    )


def _sizes(cluster: Cluster, state_bytes: float) -> Iterator[Cluster]:
    least = ceil(state_bytes / cluster.device.usable_memory_bytes)
    nodes = max(cluster.nodes + 1, ceil(least / cluster.gpus_per_node))
    for step in range(MORE_SIZES):
        yield scaled(cluster, nodes, cluster.gpus_per_node)
        nodes += max(1, nodes // 4) if step else 1
