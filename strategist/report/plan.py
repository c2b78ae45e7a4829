"""Reports of one plan, and of several plans side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.estimate import Estimate
from strategist.contract.plan import Plan, Reason
from strategist.profiles.stacks import load_stack
from strategist.report.plan_description import described_parts
from strategist.report.setting_text import (
    ARITHMETIC,
    batch_words,
    candidate_words,
    differing,
    gib,
    layer_words,
    layout_words,
    percent,
    policy_words,
    recompute_words,
    tokens,
)
from strategist.report.text_blocks import FoldingTable, ListTable, bar, grouped, heading, pairs, section
from strategist.units import show_bytes, show_energy, show_money, show_seconds

PART_NAMES = {
    "unsharded_parameters": "gathered parameters",
    "communication": "communication buffers",
    "allocator": "allocator slack",
    "memory_bound": "memory-bound kernels",
    "launch": "kernel launches",
    "tp_communication": "TP communication",
    "cp_communication": "CP communication",
    "ep_communication": "EP communication",
    "dp_communication": "DP communication",
    "pp_communication": "PP communication",
    "bubble": "pipeline bubble",
}
"""Display names of parts of memory and time whose field name is not the usual term."""


def ranking(plans: Sequence[Plan]) -> FoldingTable:
    """The plans side by side, best first."""
    extra_knobs = [name for name in ARITHMETIC if len({getattr(plan.candidate.knobs, name) for plan in plans}) > 1]
    rows = enumerate(zip(plans, differing(plans), strict=True), start=1)
    return FoldingTable(
        rows=[{"#": str(rank), **_row(plan, extra_knobs, words)} for rank, (plan, words) in rows],
        into="layout", folds=["runs on", "offload", "recompute", "comm", "MFU"], left=["recompute", "offload", "runs on"],
    )  # fmt: skip


def _row(plan: Plan, extra_knobs: Sequence[str], words: str) -> dict[str, str]:
    knobs, estimate = plan.candidate.knobs, plan.estimate
    return {
        "layout": ", ".join(part for part in (candidate_words(plan.candidate, extra_knobs), words) if part),
        "recompute": recompute_words(knobs),
        "offload": knobs.offload,
        "batch": batch_words(plan.candidate, plan.workload),
        "step": show_seconds(estimate.step_seconds),
        "tok/s": tokens(estimate.tokens_per_second),
        "MFU": percent(estimate.mfu),
        "GiB": gib(estimate.peak_memory_bytes),
        "comm": percent(estimate.comm_ratio),
        "runs on": ", ".join(plan.backends) or "-",
    }


def ranking_legend(plans: Sequence[Plan]) -> str:
    """Meaning of the columns."""
    strided = any("/" in recompute_words(plan.candidate.knobs) for plan in plans)
    return ("recompute: selective/2 saves every second matmul only, /0 none. " if strided else "") + COLUMNS


COLUMNS = (
    "batch: micro-batch x accumulation. GiB: peak memory of a device. comm: share of the step in which a collective runs."
    " runs on: back ends that execute it (-: none yet). Plans predicted within 4% of each other are ordered by the host memory that"
    " they need, then by what cards prefer."
)


def plan_report(plan: Plan, title: str = "The plan") -> Group:
    """A plan in detail: settings, figures, memory and time by part, and the cards that decided it."""
    parts = (memory_report(plan), time_report(plan.estimate), reasons_report(plan.reasons))
    return Group(settings_report(plan, title), predicted_report(plan), *parts)


def settings_report(plan: Plan, title: str = "The best plan") -> Group:
    """Settings of a plan in words."""
    return section(heading(title, f"id {plan.id}"), pairs([*described_parts(plan), ("runs on", supported_by(plan))]))


def predicted_report(plan: Plan) -> Group:
    """Headline figures of a plan."""
    return section(heading("Predicted"), pairs(figures(plan)))


def supported_by(plan: Plan) -> str:
    """Back ends that can run the plan unchanged."""
    return ", ".join(plan.backends) or "no back end yet; --backend native asks for plans that strategist run executes"


def figures(plan: Plan) -> Iterable[tuple[str, str]]:
    """The headline figures of a plan."""
    estimate = plan.estimate
    low, high = estimate.step_seconds_range or (estimate.step_seconds, estimate.step_seconds)
    if plan.stack:
        yield "for", f"{plan.stack}, with factors of the published runs of {load_stack(plan.stack).measured_as or plan.stack}"
    yield "step time", f"{show_seconds(estimate.step_seconds)}, 90% interval {show_seconds(low)} to {show_seconds(high)}"
    yield from bounds(estimate)
    devices = f"all {plan.cluster.devices} devices" if plan.cluster.devices > 1 else "1 device"
    yield "tokens/s", f"{tokens(estimate.tokens_per_second)} for {devices}"
    yield "MFU", f"{percent(estimate.mfu)} of peak FLOP/s, model FLOPs only"
    exposed = f"{percent(estimate.exposed_comm_ratio)} exposed"
    yield "comm ratio", f"{percent(estimate.comm_ratio)} of the step, {exposed}"
    confidence = f"fits with {percent(estimate.shown_confidence)} confidence"
    yield "peak memory", f"{show_bytes(estimate.peak_memory_bytes)} of {show_bytes(estimate.capacity_bytes)} a device, {confidence}"
    if estimate.host_memory_bytes_per_node:
        host_memory = plan.cluster.host_memory_bytes
        capacity = f"of {show_bytes(host_memory)} there" if host_memory else "(say what there is with --host-memory)"
        yield "host memory", f"{show_bytes(estimate.host_memory_bytes_per_node)} a node {capacity}"
    if estimate.pipeline_layers:
        reason = "by the speed of their devices" if plan.cluster.groups else "embedding and head weighed"
        yield "layers", f"{layer_words(estimate.pipeline_layers)} on the stages, {reason}"
    if estimate.price_per_step is not None:
        per_million = 1e6 * estimate.price_per_step / plan.workload.tokens_per_step
        yield "price", f"${estimate.price_per_step:.4g} a step, {show_money(per_million)} a million tokens"
    if estimate.energy_joules_per_step is not None:
        per_million = 1e6 * estimate.energy_joules_per_step / plan.workload.tokens_per_step
        watts = estimate.energy_joules_per_step / estimate.step_seconds
        yield "energy", f"{show_energy(per_million)} a million tokens, {watts / 1e3:,.3g} kW with nodes and cooling"


BOUND_NAMES = {
    "compute": "matmuls and attention",
    "memory": "device memory",
    "intra_node": "links between devices of a node",
    "inter_node": "ports between nodes",
    "host_link": "links to the hosts",
}
"""Display names of the resources of a bound."""


def bounds(estimate: Estimate) -> Iterable[tuple[str, str]]:
    """Share of the lower bound in the step, and the resource that sets the bound."""
    bound, share = estimate.bound, estimate.bound_over_step
    if bound is None or share is None:
        return
    bound_times = (
        f"{show_seconds(bound.seconds)} at line rates and peaks, {show_seconds(bound.practical_seconds)} at measured links"
    )
    resource = f"bound by {BOUND_NAMES[bound.limited_by]}"
    if share > 1:
        yield "lower bound", f"{bound_times}; {resource}: the predicted step is {percent(1 - 1 / share)} shorter, which is wrong"
    else:
        yield "lower bound", f"{bound_times}: {percent(share)} of the physical limit; {resource}"


def memory_report(plan: Plan) -> Group:
    """Peak memory by part, as shares of the usable memory of the device, and what is subtracted from the device's memory."""
    estimate = plan.estimate
    capacity = estimate.capacity_bytes
    table = _parts_table()
    for name, size in _largest(estimate.memory.needed):
        table.add_row(PART_NAMES.get(name, name), bar(size / capacity), show_bytes(size), percent(size / capacity))
    peak = estimate.peak_memory_bytes
    table.add_row(Text("total", "bold"), bar(peak / capacity), show_bytes(peak), percent(peak / capacity))
    if cache := estimate.memory.cache:
        table.add_row("cached, freed when needed", bar(cache / capacity), show_bytes(cache), percent(cache / capacity))
        reserved = estimate.memory.reserved
        table.add_row("reserved, with the cache", bar(reserved / capacity), show_bytes(reserved), percent(reserved / capacity))
    title = heading("Memory of the fullest device", f"against the {show_bytes(capacity)} that can be used")
    return section(title, table, Text(_usable_memory(plan)))


def _usable_memory(plan: Plan) -> str:
    """What is subtracted from a device's memory before a plan may use it."""
    device = plan.cluster.device
    overhead, further = device.memory_bytes - device.usable_memory_bytes, device.usable_memory_bytes - plan.estimate.capacity_bytes
    context = "CUDA and the first NCCL communicator" if device.kind == "cuda" else "the process itself"
    subtracted = [f"{show_bytes(overhead)} for {context}"]
    if further > 0:
        groups = layout_words(plan.candidate.layout)
        subtracted.append(f"{show_bytes(further)} for those of further process groups ({groups})")
    return f"can be used: {show_bytes(device.memory_bytes)} of {device.name} less {', less '.join(subtracted)}"


def time_report(estimate: Estimate) -> Group:
    """Step time by part; communication counts if it is exposed."""
    step, time = estimate.step_seconds, estimate.time
    table = _parts_table()
    for name, seconds in _largest(asdict(time)):
        table.add_row(PART_NAMES.get(name, name), bar(seconds / step), show_seconds(seconds), percent(seconds / step))
    table.add_row(Text("total", "bold"), bar(1.0), show_seconds(step), "100%")
    communication = show_seconds(estimate.communication_seconds)
    exposed = f"communication: {communication} in all, of which {show_seconds(time.exposed_communication)} exposed"
    return section(heading("Time of a step", "communication as far as it is exposed"), table, Text(exposed), Text(_mfu(estimate)))


def _mfu(estimate: Estimate) -> str:
    """MFU while computing, and the share of MFU that every other part of the step costs."""
    computing = (estimate.time.matmul + estimate.time.attention) / estimate.step_seconds
    breakdown = f" = {percent(computing)} of the step in matmul and attention x {percent(estimate.mfu / computing)} of peak there"
    return f"MFU {percent(estimate.mfu)}" + (breakdown if computing > 0 else "")


@grouped
def reasons_report(reasons: Sequence[Reason]) -> Iterator[RenderableType]:
    """Cards that decided settings of a plan, and its risks."""
    shaping = [reason for reason in reasons if reason.effect != "risk"]
    risks = [reason for reason in reasons if reason.effect == "risk"]
    if shaping:
        yield section(heading("Cards that decided it"), pairs((reason.card, policy_words(reason)) for reason in shaping))
    if risks:
        yield section(heading("Risks"), pairs((reason.card, reason.text) for reason in risks))


def _parts_table() -> Table:
    table = ListTable.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(justify="left", no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    return table


def _largest(parts: dict[str, float]) -> list[tuple[str, float]]:
    """Parts above zero, largest first."""
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda part: -part[1])
