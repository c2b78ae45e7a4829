"""The planner's answer, from verdict to assumptions."""

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.answer import Answer, Dropped, Training, Way
from strategist.contract.plan import Plan
from strategist.report.blocks import bullets, columns, heading, section
from strategist.report.plan import plan_report, ranking, ranking_legend
from strategist.report.words import change_words, gib, percent, tokens
from strategist.units import show_count, show_days, show_energy, show_money, show_seconds


def answer_report(answer: Answer) -> Group:
    """What the planner says, the most important first."""
    return Group(*_blocks(answer))


def _blocks(answer: Answer) -> Iterator[RenderableType]:
    yield _title(answer)
    yield Text(f"\n{answer.verdict}")
    if answer.plans:
        shown = f"the best of {answer.feasible:,} that fit; they differ in a parallel degree, recomputation or offload"
        yield section(heading("Plans", shown), ranking(answer.plans), Text(ranking_legend(answer.plans), "dim"))
        if answer.proofs:
            yield section(heading("Proof", "what tensors take at most when simulated"), _proofs(answer))
        if answer.trainings:
            title = f"on {show_count(answer.request.tokens or 0)} tokens"
            yield section(heading("Training", title), _trainings(answer.trainings), Text(_interrupted(answer), "dim"))
        for why, changes in _convergence(answer).items():
            yield Text(f"\nThe trained model may differ, as {why}: {', '.join(changes)}.", "bold")
        yield plan_report(_shaped(answer.plans[0], answer.dropped), "The best plan")
    if answer.ways:
        title = "Other ways" if answer.plans else "Nearest ways that fit"
        yield section(heading(title, "" if answer.plans else "cheapest change first"), _ways(answer))
    if not answer.plans and not answer.ways:
        yield section(
            heading("No way found"), Text("no single change makes it fit: ask for more devices with --gpus, or a smaller --model")
        )
    yield section(heading("Candidates"), bullets(_counts(answer)))
    if answer.not_as_shipped:
        yield section(heading("Cards that are not as shipped"), bullets(answer.not_as_shipped))
    if answer.notes:
        yield section(heading("Assumed"), bullets(answer.notes))


def _convergence(answer: Answer) -> dict[str, list[str]]:
    """What may change the trained model, by who said so: the request, or the back end."""
    asked = (*answer.request.allow, *answer.request.fix)
    found: dict[str, list[str]] = {}
    for change in answer.changes_convergence:
        why = "allowed" if change.partition(" ")[0] in asked else f"{answer.request.backend} does by itself"
        found.setdefault(why, []).append(change)
    return found


def _proofs(answer: Answer) -> Table:
    table = columns("#", "simulated GiB", "reserved", "predicted", "verdict", wrap=["verdict"])
    for rank, (plan, proof) in enumerate(zip(answer.plans, answer.proofs, strict=True), start=1):
        sizes = ("-" if size is None else gib(size) for size in (proof.peak_memory_bytes, proof.peak_reserved_bytes))
        said = f"{proof.verdict.value}: {proof.why}" if proof.why else proof.verdict.value
        table.add_row(str(rank), *sizes, gib(plan.estimate.memory.total), said)
    return table


def _trainings(trainings: tuple[Training, ...]) -> Table:
    table = columns("#", "steps", "time", "failures", "productive", "price", "energy")
    for rank, item in enumerate(trainings, start=1):
        price = "-" if item.price is None else show_money(item.price)
        energy = "-" if item.energy_joules is None else show_energy(item.energy_joules)
        times = (show_days(item.seconds), f"{item.failures:,.3g}", percent(item.productive_ratio))
        table.add_row(str(rank), f"{item.steps:,}", *times, price, energy)
    return table


def _interrupted(answer: Answer) -> str:
    """What the times take in beside steps."""
    cluster, steps = answer.cluster, answer.plans[0].candidate.options.checkpoint_interval
    known = "" if cluster.node_seconds_between_failures else " (as H100s of Llama 3 405B had; --node-failures says otherwise)"
    return (
        f"time: with a failure every {show_days(cluster.seconds_between_failures)}{known}, {show_seconds(cluster.restart_seconds)}"
        f" until training goes on, and a checkpoint every {steps:,} steps of the best plan, stored at"
        f" {cluster.storage_bytes_per_second / 1e9:g} GB/s a node. productive: share of it in steps that count."
    )


def _shaped(plan: Plan, dropped: tuple[Dropped, ...]) -> Plan:
    """The plan without the laws and defaults that had nothing to drop here."""
    acted = {(item.card, item.policy) for item in dropped}
    soft = ("prefer", "warn", "risk")
    kept = tuple(reason for reason in plan.reasons if reason.effect in soft or (reason.card, reason.policy) in acted)
    return replace(plan, reasons=kept)


def _title(answer: Answer) -> Text:
    workload = answer.request.workload
    documents = f" in documents of {workload.document_tokens:,}" if workload.document_tokens else ""
    step = f"{workload.global_batch} x {workload.seq_len:,} tokens{documents} a step"
    what = f"{workload.train} training, {step}, {workload.precision}"
    name = f"{answer.model.name} ({show_count(answer.model.parameters)} parameters) on {answer.cluster.name}"
    return Text.assemble((name, "bold"), f"  {what}, {workload.optimizer}")


def _ways(answer: Answer) -> RenderableType:
    return bullets((_way(way) for way in answer.ways), mark="1")


def _way(way: Way) -> Group:
    estimate = way.plan.estimate
    host = estimate.host_memory_bytes_per_node
    numbers = [
        f"{tokens(estimate.tokens_per_second)} tokens/s",
        f"step {show_seconds(estimate.step_seconds)}",
        f"MFU {percent(estimate.mfu)}",
        f"peak {gib(estimate.peak_memory_bytes)} of {gib(estimate.capacity_bytes)} GiB",
        *([f"host {gib(host)} GiB a node"] if host else []),
    ]
    said = [way.note, *(["the trained model may differ"] if way.changes_convergence else [])]
    said += [] if way.plan.backends else ["no back end runs it yet"]
    lines = [Text.assemble((way.title, "bold"), f"  {' '.join(way.flags)}"), Text(", ".join(numbers)), Text(change_words(way.plan))]
    if note := "; ".join(part for part in said if part):
        lines.append(Text(note, "dim"))
    return Group(*lines)


def _counts(answer: Answer) -> Iterator[RenderableType]:
    dropped = sum(item.candidates for item in answer.dropped)
    yield f"{answer.candidates:,} walked: {answer.feasible:,} allowed and fitting"
    if answer.too_large:
        yield f"{answer.too_large:,} too large for the device"
    if answer.host_too_small:
        yield f"{answer.host_too_small:,} too large for the host memory"
    if dropped:
        yield Group(f"{dropped:,} dropped by cards:", _dropped(answer.dropped))


def _dropped(dropped: tuple[Dropped, ...]) -> RenderableType:
    table = columns("candidates", "card", "why", wrap=["why"], left=["card"])
    for item in sorted(dropped, key=lambda item: -item.candidates):
        table.add_row(f"{item.candidates:,}", item.card, item.because)
    return table
