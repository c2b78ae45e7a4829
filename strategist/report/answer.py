"""The full report of an answer, from verdict to assumptions."""

from collections.abc import Callable, Collection, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.answer import SECTION_NAMES, Alternative, Answer, Dropped, Training
from strategist.contract.plan import Plan, Reason
from strategist.report.plan import (
    memory_report,
    predicted_report,
    ranking,
    ranking_legend,
    reasons_report,
    settings_report,
    time_report,
)
from strategist.report.setting_text import change_words, gib, layout_words, percent, tokens, tokens_range
from strategist.report.text_blocks import bullets, columns, grouped, heading, section, selected_blocks
from strategist.units import show_count, show_days, show_energy, show_money, show_seconds

Section = Callable[[Answer, int], Iterator[RenderableType]]
"""Makes the blocks of one section, for an answer and the plan with a given rank."""


def answer_report(answer: Answer, sections: Collection[str] = SECTION_NAMES, rank: int = 1) -> Group:
    """The full answer, most important first; or only the named ``sections``, for the plan with this ``rank``. Without a plan, the
    verdict says why.
    """
    verdict = [Text(f"\n{answer.verdict}")] if set(sections) == set(SECTION_NAMES) or not answer.plans else []
    return Group(title(answer), *verdict, *selected_blocks(SECTIONS, sections, answer, rank))


def _plans(answer: Answer, rank: int) -> Iterator[RenderableType]:
    if answer.plans:
        detail = f"the best of {answer.feasible:,} that fit; they differ in a parallel degree, recomputation or offload"
        yield section(heading("Plans", detail), ranking(answer.plans), Text(ranking_legend(answer.plans), "dim"))
        yield from (proof_section(answer) for _ in answer.proofs[:1])
        yield from (training_section(answer) for _ in answer.trainings[:1])
        yield from convergence_lines(answer)


def _of_plan(report: Callable[[Plan], RenderableType]) -> Section:
    """A section on one plan; empty without plans."""
    return lambda answer, rank: (report(plan) for plan in answer.plans[rank - 1 : rank])


def _cards(answer: Answer, rank: int) -> Iterator[RenderableType]:
    yield from (reasons_report(_shaping_reasons(plan, answer.dropped)) for plan in answer.plans[rank - 1 : rank])
    if answer.not_as_shipped:
        yield section(heading("Cards that are not as shipped"), bullets(answer.not_as_shipped))


def _alternatives(answer: Answer, rank: int) -> Iterator[RenderableType]:
    if answer.alternatives:
        header = heading("Alternatives") if answer.plans else heading("Alternatives that fit", "cheapest change first")
        yield section(header, bullets(map(_alternative, answer.alternatives), mark="1"))
    elif not answer.plans:
        text = "no single change makes it fit: ask for more devices with --gpus, or a smaller --model"
        yield section(heading("No alternative found"), Text(text))


def _candidates(answer: Answer, rank: int) -> Iterator[RenderableType]:
    yield section(heading("Candidates"), bullets(_counts(answer)))


def _assumed(answer: Answer, rank: int) -> Iterator[RenderableType]:
    if answer.notes:
        yield section(heading("Assumed"), bullets(answer.notes))


def _backends(answer: Answer, rank: int) -> Iterator[RenderableType]:
    table = columns("backend", "tokens/s", "90% within", "GiB", "mesh", wrap=["mesh"], left=["backend"])
    for name, plan in ((backend_plan.backend, backend_plan.plan) for backend_plan in answer.backends):
        if plan is not None:
            estimate = plan.estimate
            slowest, fastest = tokens_range(estimate)
            table.add_row(
                name, tokens(estimate.tokens_per_second), f"{tokens(slowest)} to {tokens(fastest)}",
                gib(estimate.peak_memory_bytes), layout_words(plan.candidate.layout),
            )  # fmt: skip
    reasons = ((backend_plan.backend, backend_plan.why) for backend_plan in answer.backends if backend_plan.plan is None)
    without_plan = [Text(reason if reason.startswith(name) else f"{name}: {reason}") for name, reason in reasons]
    if table.row_count:
        yield section(heading("Back ends", "the best plan of each; plan --backend NAME plans for it"), table)
    if without_plan:
        yield section(heading("No plan"), bullets(without_plan))


_SECTION_BUILDERS: tuple[Section, ...] = (
    _plans,
    _of_plan(settings_report),
    _of_plan(predicted_report),
    _of_plan(memory_report),
    _of_plan(lambda plan: time_report(plan.estimate)),
    _cards,
    _alternatives,
    _candidates,
    _assumed,
    _backends,
)
SECTIONS = dict(zip(SECTION_NAMES, _SECTION_BUILDERS, strict=True))
"""Function of each section of a full answer."""


def proof_section(answer: Answer) -> Group:
    """Simulated memory of each plan."""
    return section(heading("Proof", "what tensors take at most when simulated"), _proofs(answer))


def training_section(answer: Answer) -> Group:
    """Time, price and energy of training on the requested tokens, for each plan."""
    detail = f"on {show_count(answer.request.tokens or 0)} tokens"
    return section(heading("Training", detail), _trainings(answer.trainings), Text(_failure_note(answer), "dim"))


def best_training(answer: Answer) -> Group:
    """Time, price and energy of training by the best plan on the requested tokens."""
    detail = f"by the best plan, on {show_count(answer.request.tokens or 0)} tokens; --explain prints all"
    return section(heading("Training", detail), _trainings(answer.trainings[:1]))


def convergence_lines(answer: Answer) -> Iterator[Text]:
    """Settings of the best plan that may change the trained model."""
    for reason, changes in _convergence(answer).items():
        yield Text(f"\nThe trained model may differ, as {reason}: {', '.join(changes)}.", "bold")


def _convergence(answer: Answer) -> dict[str, list[str]]:
    """Settings that may change the trained model, by origin: the request, or the back end."""
    requested = (*answer.request.allow, *answer.request.fix)
    found: dict[str, list[str]] = {}
    for change in answer.changes_convergence:
        reason = "allowed" if change.partition(" ")[0] in requested else f"{answer.request.backend} does by itself"
        found.setdefault(reason, []).append(change)
    return found


def _proofs(answer: Answer) -> Table:
    table = columns("#", "simulated GiB", "reserved", "predicted", "verdict", wrap=["verdict"])
    for rank, (plan, proof) in enumerate(zip(answer.plans, answer.proofs, strict=True), start=1):
        sizes = ("-" if size is None else gib(size) for size in (proof.peak_memory_bytes, proof.peak_reserved_bytes))
        verdict = f"{proof.verdict.value}: {proof.why}" if proof.why else proof.verdict.value
        table.add_row(str(rank), *sizes, gib(plan.estimate.memory.total), verdict)
    return table


def _trainings(trainings: tuple[Training, ...]) -> Table:
    table = columns("#", "steps", "time", "failures", "productive", "price", "energy")
    for rank, item in enumerate(trainings, start=1):
        price = "-" if item.price is None else show_money(item.price)
        energy = "-" if item.energy_joules is None else show_energy(item.energy_joules)
        times = (show_days(item.seconds), f"{item.failures:,.3g}", percent(item.productive_ratio))
        table.add_row(str(rank), f"{item.steps:,}", *times, price, energy)
    return table


def _failure_note(answer: Answer) -> str:
    """Interruptions that the times include, in words: failures, restarts and checkpoints."""
    cluster, steps = answer.cluster, answer.plans[0].candidate.options.checkpoint_interval
    known = "" if cluster.node_seconds_between_failures else " (as H100s of Llama 3 405B had; --node-failures sets another value)"
    return (
        f"time: with a failure every {show_days(cluster.seconds_between_failures)}{known}, {show_seconds(cluster.restart_seconds)}"
        f" until training goes on, and a checkpoint every {steps:,} steps of the best plan, stored at"
        f" {cluster.storage_bytes_per_second / 1e9:g} GB/s a node. productive: share of it in steps that count."
    )


def _shaping_reasons(plan: Plan, dropped: tuple[Dropped, ...]) -> tuple[Reason, ...]:
    """The plan's reasons, without laws and defaults that dropped no candidate here."""
    dropping_policies = {(item.card, item.policy) for item in dropped}
    soft = ("prefer", "warn", "risk")
    return tuple(reason for reason in plan.reasons if reason.effect in soft or (reason.card, reason.policy) in dropping_policies)


def title(answer: Answer) -> Text:
    """Model, training and cluster of the request, on one line."""
    workload = answer.request.workload
    documents = f" in documents of {workload.document_tokens:,}" if workload.document_tokens else ""
    step = f"{workload.global_batch:,} x {workload.seq_len:,} tokens{documents} a step"
    settings = f"{workload.train} training, {step}, {workload.precision}"
    name = f"{answer.model.name} ({show_count(answer.model.parameters)} parameters) on {answer.cluster.name}"
    return Text.assemble((name, "bold"), f"  {settings}, {workload.optimizer}")


@grouped
def _alternative(other: Alternative) -> Iterator[RenderableType]:
    estimate = other.plan.estimate
    host = estimate.host_memory_bytes_per_node
    numbers = [
        f"{tokens(estimate.tokens_per_second)} tokens/s",
        f"step {show_seconds(estimate.step_seconds)}",
        f"MFU {percent(estimate.mfu)}",
        f"peak {gib(estimate.peak_memory_bytes)} of {gib(estimate.capacity_bytes)} GiB",
        *([f"host {gib(host)} GiB a node"] if host else []),
    ]
    remarks = [other.note, *(["the trained model may differ"] if other.changes_convergence else [])]
    remarks += [] if other.plan.backends else ["no back end runs it yet"]
    yield Text.assemble((other.title, "bold"), f"  {' '.join(other.flags)}")
    yield Text(", ".join(numbers))
    yield Text(change_words(other.plan))
    if note := "; ".join(part for part in remarks if part):
        yield Text(note, "dim")


def _counts(answer: Answer) -> Iterator[RenderableType]:
    dropped = sum(item.candidates for item in answer.dropped)
    yield f"{answer.candidates:,} enumerated: {answer.feasible:,} are allowed and fit"
    if answer.too_large:
        yield f"{answer.too_large:,} too large for the device"
    if answer.host_too_small:
        yield f"{answer.host_too_small:,} too large for the host memory"
    if dropped:
        yield Group(f"{dropped:,} dropped by cards:", _dropped(answer.dropped))


def _dropped(dropped: tuple[Dropped, ...]) -> RenderableType:
    most_first = sorted(dropped, key=lambda item: -item.candidates)
    rows = ((f"{item.candidates:,}", item.card, item.because) for item in most_first)
    return columns("candidates", "card", "why", rows=rows, wrap=["why"], left=["card"])
