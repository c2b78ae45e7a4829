"""Traces: the simulated step of a plan as events for Chrome's tracing and Perfetto."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strategist.contract.plan import Plan
from strategist.cost.pipeline_actions import Action, Kind, Pipeline
from strategist.cost.simulated_steps import STAGE_PARTS, TAIL_PARTS, Simulated
from strategist.files import outputs

Event = dict[str, Any]

COMPUTE, COLLECTIVES, TRANSFERS = 1, 2, 3
"""Threads of a rank; concurrent transfers use further ones."""

WORDS = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "backward for inputs",
    Kind.BACKWARD_WEIGHT: "backward for weights",
}
PASSES = {Kind.FORWARD: (0,), Kind.BACKWARD: (1, 2), Kind.BACKWARD_INPUT: (1,), Kind.BACKWARD_WEIGHT: (2,)}
"""The passes of ``cost.pipeline.Passes`` that each kind of action takes."""


def trace(plan: Plan, simulated: Simulated) -> dict[str, Any]:
    """The trace document: a process per pipeline rank, with its actions in microseconds from the start of the step.

    Ranks with equal stages do the same at the same time, so one represents all of them. The collectives of an action are summed up
    at its start; exposed gathers, reductions, copies and the update follow a rank's last action.
    """
    events = [event for part in (_names, _work, _transfers, _memory) for event in part(plan, simulated)]
    timeline = simulated.timeline
    metadata = {
        "plan": plan.id,
        "model": plan.model.name,
        "cluster": plan.cluster.name,
        "schedule": timeline.graph.pipeline.schedule if plan.candidate.layout.pp > 1 else "none",
        "micro_batches": timeline.graph.pipeline.micro_batches,
        "step_seconds": float(timeline.step_seconds[0]),
        "bubble_share": float(timeline.bubble_seconds[0].mean() / timeline.step_seconds[0]),
        "bubble_seconds_by_rank": timeline.bubble_seconds[0].tolist(),
    }
    return {"otherData": metadata, "displayTimeUnit": "ms", "traceEvents": events}


def _names(plan: Plan, simulated: Simulated) -> Iterator[Event]:
    pipeline = simulated.timeline.graph.pipeline
    devices_per_rank = plan.candidate.layout.world_size // pipeline.pp
    for rank in range(pipeline.pp):
        layers = sum(int(simulated.layers[0, stage]) for stage in range(pipeline.stages) if pipeline.rank_of(stage) == rank)
        name = f"rank {rank} of {pipeline.pp}: {layers} layers" if pipeline.pp > 1 else f"every rank: {layers} layers"
        yield _meta(
            rank,
            0,
            "process_name",
            name + _end_layers(pipeline, rank) + (f", on {devices_per_rank} devices" if devices_per_rank > 1 else ""),
        )
        for thread, words in ((COMPUTE, "compute"), (COLLECTIVES, "collectives and copies"), (TRANSFERS, "transfers")):
            yield _meta(rank, thread, "thread_name", words)


def _end_layers(pipeline: Pipeline, rank: int) -> str:
    """Whether embedding or head are on a rank, in words."""
    first, last = pipeline.rank_of(0) == rank, pipeline.rank_of(pipeline.stages - 1) == rank
    return ", embedding and head" if first and last else ", embedding" if first else ", head" if last else ""


def _meta(process: int, thread: int, name: str, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": {"name": value}}


def _work(_: Plan, simulated: Simulated) -> Iterator[Event]:
    """Actions, the sums of their collectives, and the time after a rank's last action."""
    timeline, end_of_rank = simulated.timeline, [0.0] * simulated.timeline.graph.pipeline.pp
    for rank, action, start, end in timeline.actions():
        parts = _parts(simulated, action)
        args = {"stage": action.stage, "micro_batch": action.micro_batch, "layers": int(simulated.layers[0, action.stage])}
        part_seconds = {f"{name}_seconds": seconds for name, seconds in parts.items() if seconds > 0}
        name = f"{WORDS[action.kind]} {action.micro_batch}, stage {action.stage}"
        yield _slice(rank, COMPUTE, name, WORDS[action.kind], start, end, args | part_seconds)
        start_seconds = start
        for part, seconds in parts.items():
            if part.endswith("_communication") and seconds > 0:
                yield _slice(rank, COLLECTIVES, _axis(part), "collective", start_seconds, start_seconds + seconds, args)
                start_seconds += seconds
        end_of_rank[rank] = end
    for rank, start_seconds in enumerate(end_of_rank):
        for part in TAIL_PARTS:
            seconds = float(simulated.tails[part][0, rank])
            if seconds > 0:
                thread = COMPUTE if part == "optimizer" else COLLECTIVES
                yield _slice(rank, thread, _axis(part), part, start_seconds, start_seconds + seconds, {})
                start_seconds += seconds


def _parts(simulated: Simulated, action: Action) -> dict[str, float]:
    """Seconds of an action by part of the step."""
    head = simulated.layers.shape[1] - 1
    layer, embedding, last = (
        costs[list(PASSES[action.kind]), :, 0].sum(axis=0)
        for costs in (simulated.passes.layer, simulated.passes.embedding, simulated.passes.head)
    )
    sums = simulated.layers[0, action.stage] * layer + (action.stage == 0) * embedding + (action.stage == head) * last
    return dict(zip(STAGE_PARTS, sums.tolist(), strict=True))


def _axis(part: str) -> str:
    return part.removesuffix("_communication") + " collectives" if part.endswith("_communication") else part


def _transfers(_: Plan, simulated: Simulated) -> Iterator[Event]:
    """Activations to the next stage and gradients to the previous one, from when the sender's port is free to arrival."""
    timeline, hop = simulated.timeline, float(simulated.timeline.costs.hop_seconds[0])
    pipeline, link_free = timeline.graph.pipeline, [0.0] * simulated.timeline.graph.pipeline.pp
    for rank, action, start, end in timeline.actions():
        target = action.stage + (1 if action.kind is Kind.FORWARD else -1)
        if action.kind is Kind.BACKWARD_WEIGHT or not 0 <= target < pipeline.stages or pipeline.rank_of(target) == rank:
            continue
        begin = max(end, link_free[rank]) if timeline.costs.overlaps else max(end - hop, start)
        link_free[rank] = begin + hop
        contents = "activations" if action.kind is Kind.FORWARD else "gradients"
        args = {"from_stage": action.stage, "to_stage": target, "to_rank": pipeline.rank_of(target)}
        name = f"{contents} {action.micro_batch} to rank {pipeline.rank_of(target)}"
        yield _slice(rank, TRANSFERS, name, "transfer", begin, begin + hop, args | {"micro_batch": action.micro_batch})


def _memory(_: Plan, simulated: Simulated) -> Iterator[Event]:
    """Activations awaiting their backward pass, after each action that changes them."""
    activation_bytes: dict[int, float] = {}
    for rank, action, _start, end in simulated.timeline.actions():
        if action.kind is not Kind.BACKWARD_INPUT:
            sign = 1 if action.kind is Kind.FORWARD else -1
            activation_bytes[rank] = activation_bytes.get(rank, 0.0) + sign * float(
                simulated.timeline.costs.saved_bytes[0, action.stage]
            )
            value = {"bytes": max(round(activation_bytes[rank]), 0)}
            yield {"ph": "C", "name": "activations kept", "pid": rank, "tid": 0, "ts": _microseconds(end), "args": value}


def _slice(process: int, thread: int, name: str, kind: str, start: float, end: float, args: Event) -> Event:
    begin = _microseconds(start)
    return {
        "ph": "X", "name": name, "cat": kind, "pid": process, "tid": thread,
        "ts": begin, "dur": round(_microseconds(end) - begin, 3), "args": args,
    }  # fmt: skip


def _microseconds(seconds: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(seconds * 1e6, 3)


def write(document: dict[str, Any], path: str | Path, *, force: bool = False) -> None:
    """Writes the document atomically; without ``force`` it replaces traces only.

    Raises:
        FileError: the path cannot be written, or holds another file.
    """
    text = json.dumps(document, separators=(",", ":")) + "\n"
    outputs.write(path, text, marker='"otherData":{"plan":', force=force)
