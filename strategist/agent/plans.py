"""Tools for plans: plan, explain, why_not, compare, simulate."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Never

from pydantic import Field

from strategist import api
from strategist.agent import shared_arguments
from strategist.agent.pagination import PagedAnswer
from strategist.agent.plan_summary import Parts, ShownPlan, parts, rounded, shown
from strategist.agent.schema import Arguments, several, text, whole
from strategist.agent.session import AgentSession
from strategist.agent.tool import tool
from strategist.contract.answer import Alternative, Answer
from strategist.contract.comparison import Comparison
from strategist.contract.explanation import Decision, Explanation
from strategist.contract.knobs import KnobValue
from strategist.contract.setting_parser import parse_fix, setting_name
from strategist.frozen import frozen
from strategist.units import GIB


@frozen
class PlanAnswer:
    """``verdict``: whether the model fits, in words. ``candidates``, ``feasible``, ``too_large``, ``host_too_small``: numbers of
    candidates. Items: requested proofs, plans by rank, alternatives, parts of the best plan, assumptions, reasons for the best
    plan, and candidates that cards excluded."""

    verdict: str
    candidates: int
    feasible: int
    too_large: int
    host_too_small: int
    best: ShownPlan | None
    changes_convergence: tuple[str, ...]
    not_as_shipped: tuple[str, ...]


@frozen
class ShownProof:
    """Simulated memory of a plan. ``verdict``: fits, too large, or open if the simulation cannot tell; ``why``: the reason then."""

    kind: str = "proof"
    plan: str
    verdict: str
    why: str
    peak_memory_gib: float | None


@frozen
class ShownAlternative:
    """An alternative: the arguments to change, and the best plan after the change."""

    kind: str = "alternative"
    title: str
    arguments: str
    note: str
    changes_convergence: bool
    plan: str
    settings: str
    step_seconds: float
    tokens_per_second: float
    peak_memory_gib: float
    host_memory_gib_per_node: float


@frozen
class Training:
    """Duration and price of training on the requested tokens with the best plan; price is null if unknown."""

    kind: str = "training"
    steps: int
    days: float
    price_dollars: float | None
    productive_ratio: float


@frozen
class CardRemark:
    """A remark on a plan. ``kind``: reason or advice of a card, dropped (candidates that a card excluded), or assumed (no card)."""

    kind: str
    card: str
    policy: str
    text: str
    candidates: int = 0


@frozen
class ExplainAnswer:
    """Items: each setting with the cards that chose its value; if there is none, the predicted cost chose it."""

    plan: ShownPlan
    not_as_shipped: tuple[str, ...]


@frozen
class ShownDecision:
    """The value of a setting, and the cards that chose it. ``otherwise``: by other value, the reason against it."""

    setting: str
    value: KnobValue
    cards: tuple[str, ...]
    otherwise: dict[str, str]
    changes_convergence: bool


@frozen
class WhyNotAnswer:
    """The reason against another value of a setting. ``obstacle``: illegal, forbidden, too large, host too small, slower, equally
    fast or faster. ``instead``: the plan with that value."""

    setting: str
    value: KnobValue
    obstacle: str
    text: str
    card: str
    policy: str
    instead: ShownPlan | None


@frozen
class SimulateAnswer:
    """Simulated memory of a plan. ``verdict``: fits, too large, or open if the simulation cannot tell. ``predicted_gib``:
    prediction of the cost model for the same memory. Items: the ranks."""

    plan: str
    verdict: str
    why: str
    capacity_gib: float
    predicted_gib: float | None


@frozen
class SimulatedRank:
    """Peak memory of one simulated rank by part, and its traffic in a step by axis and collective.

    at: moment of the peak. cache_releases: number of times in a step that the allocator releases cached blocks, since the device
    is full.
    """

    rank: int
    peak_memory_gib: float
    reserved_gib: float | None
    cache_releases: int
    at: str
    memory_gib: dict[str, float]
    traffic_gib: dict[str, float]
    notes: tuple[str, ...]


@frozen
class CompareAnswer:
    """Two plans. Items: what differs between them."""

    first: ShownPlan
    second: ShownPlan


@frozen
class ShownDifference:
    """A difference; ``kind``: situation, setting, figure, memory, time or card. A value is
    null if it does not apply to that plan. Memory is in GiB, time in seconds; names of other figures contain the unit."""

    kind: str
    name: str
    first: KnobValue | float | None
    second: KnobValue | float | None


class PlanArguments(shared_arguments.RequestArguments, shared_arguments.Language):
    top: Annotated[int, whole("Number of plans in the answer.", 5, most=20)] = 3
    prove: Annotated[
        bool, Field(description="Simulate each plan, as the tool simulate does, and rank by the simulated memory.")
    ] = False


class ExplainArguments(shared_arguments.Deciding, shared_arguments.Language, shared_arguments.WaitArguments):
    plan: shared_arguments.PlanName
    setting: Annotated[str, text("Explain only this setting.", "recompute")] = ""


class WhyNotArguments(shared_arguments.Deciding, shared_arguments.Language):
    plan: shared_arguments.PlanName
    setting: Annotated[str, text("NAME=VALUE, as in fix of the tool plan.", "recompute=none")]


class CompareArguments(Arguments):
    first: shared_arguments.PlanName
    second: shared_arguments.PlanName


class SimulateArguments(shared_arguments.WaitArguments):
    plan: shared_arguments.PlanName
    ranks: Annotated[
        list[Annotated[int, whole(least=0, most=10**6)]],
        several("Ranks; default: the first rank of the first and of the last pipeline stage.", [0]),
    ]


@tool({"model": "32b", "gpus": "8x24GB"}, {"model": "llama3-70b", "gpus": "8x8xH100", "fix": ["tp=8"]}, long=True)
def plan(
    session: AgentSession, arguments: PlanArguments
) -> PagedAnswer[PlanAnswer, ShownPlan | ShownProof | ShownAlternative | Training | Parts | CardRemark]:
    """Finds out whether a model fits some GPUs, and the best settings: ranked plans, each with an id for other tools; then
    alternatives, assumptions, reasons, and the candidates that cards excluded."""
    request = shared_arguments.request(session, arguments)
    answer = api.plan(request, **shared_arguments.deciding(session, arguments), top=arguments.top)
    if arguments.prove:
        answer = api.prove(answer)
    for plan in (*answer.plans, *(other.plan for other in answer.alternatives)):
        gpus = request.gpus if plan.cluster == answer.cluster else plan.cluster.name
        session.keep(plan, replace(request, gpus=gpus, workload=plan.workload))
    head = PlanAnswer(
        verdict=answer.verdict, candidates=answer.candidates, feasible=answer.feasible, too_large=answer.too_large,
        host_too_small=answer.host_too_small, best=shown(answer.plans[0]) if answer.plans else None,
        changes_convergence=answer.changes_convergence, not_as_shipped=answer.not_as_shipped,
    )  # fmt: skip
    return PagedAnswer(head=head, items=tuple(_planned(answer)))


@tool({"plan": "58698c070e9c"}, {"plan": "58698c070e9c", "setting": "recompute"}, long=True)
def explain(session: AgentSession, arguments: ExplainArguments) -> PagedAnswer[ExplainAnswer, ShownDecision | CardRemark]:
    """Explains why each setting of a plan has its value: the cards that chose it, and what rules out other values."""
    setting = arguments.setting and setting_name(arguments.setting, f"setting {arguments.setting}")
    found = api.explain(session.plan(arguments.plan), **shared_arguments.deciding(session, arguments))
    head = ExplainAnswer(plan=shown(found.plan), not_as_shipped=found.not_as_shipped)
    return PagedAnswer(head=head, items=tuple(_explained(found, setting)))


@tool({"plan": "58698c070e9c", "setting": "recompute=none"})
def why_not(session: AgentSession, arguments: WhyNotArguments) -> PagedAnswer[WhyNotAnswer, Never]:
    """Explains what rules out another value of one setting of a plan: a constraint, a card, memory or time, with figures."""
    name, value = parse_fix(arguments.setting)
    found = api.why_not(session.plan(arguments.plan), name, value, **shared_arguments.deciding(session, arguments))
    if found.plan is not None and (request := session.request(arguments.plan)) is not None:
        session.keep(found.plan, request)
    return PagedAnswer(
        head=WhyNotAnswer(
            setting=found.setting, value=found.value, obstacle=found.obstacle.value, text=found.text, card=found.card,
            policy=found.policy, instead=None if found.plan is None else shown(found.plan),
        )
    )  # fmt: skip


@tool({"first": "58698c070e9c", "second": "out/plan.json"})
def compare(session: AgentSession, arguments: CompareArguments) -> PagedAnswer[CompareAnswer, ShownDifference]:
    """Compares two plans: settings, predicted figures, memory and time by part, and the cards that apply to only one."""
    first, second = session.plan(arguments.first), session.plan(arguments.second)
    return PagedAnswer(
        head=CompareAnswer(first=shown(first), second=shown(second)), items=tuple(_differences(api.compare(first, second)))
    )


@tool({"plan": "58698c070e9c"}, long=True)
def simulate(session: AgentSession, arguments: SimulateArguments) -> PagedAnswer[SimulateAnswer, SimulatedRank]:
    """Checks a plan's memory without a GPU: runs some of its ranks on tensors that have no data. Takes seconds to minutes."""
    found = api.simulate(session.plan(arguments.plan), arguments.ranks)
    proof, predicted = found.proof, found.predicted
    head = SimulateAnswer(
        plan=found.plan_id, verdict=proof.verdict.value, why=proof.why, capacity_gib=rounded(found.capacity_bytes / GIB),
        predicted_gib=None if predicted is None else rounded(predicted.allocated / GIB),
    )  # fmt: skip
    ranks = tuple(
        SimulatedRank(
            rank=rank.rank, peak_memory_gib=rounded(rank.peak_memory_bytes / GIB),
            reserved_gib=None if rank.peak_reserved_bytes is None else rounded(rank.peak_reserved_bytes / GIB),
            cache_releases=rank.cache_releases,
            at=f"{rank.moment.phase} {rank.moment.module}".strip(),
            memory_gib={name: rounded(size / GIB) for name, size in rank.memory.items() if size},
            traffic_gib={f"{flow.axis} {flow.collective}": rounded(flow.message_bytes / GIB) for flow in rank.traffic},
            notes=rank.notes,
        )
        for rank in found.ranks
    )  # fmt: skip
    return PagedAnswer(head=head, items=ranks)


def _planned(answer: Answer) -> Iterator[Any]:
    for plan, proof in zip(answer.plans, answer.proofs, strict=False):
        peak = None if proof.peak_memory_bytes is None else rounded(proof.peak_memory_bytes / GIB)
        yield ShownProof(plan=plan.id, verdict=proof.verdict.value, why=proof.why, peak_memory_gib=peak)
    yield from map(shown, answer.plans[1:])
    for training in answer.trainings[:1]:
        yield Training(
            steps=training.steps, days=rounded(training.seconds / 86400), productive_ratio=rounded(training.productive_ratio),
            price_dollars=None if training.price is None else rounded(training.price),
        )  # fmt: skip
    yield from map(_alternative, answer.alternatives)
    if answer.plans:
        yield parts(answer.plans[0])
    yield from (CardRemark(kind="assumed", card="", policy="", text=note) for note in answer.notes)
    for reason in answer.plans[0].reasons if answer.plans else ():
        yield CardRemark(kind="reason", card=reason.card, policy=reason.policy, text=reason.text)
    for item in answer.dropped:
        yield CardRemark(kind="dropped", card=item.card, policy=item.policy, text=item.because, candidates=item.candidates)


def _alternative(other: Alternative) -> ShownAlternative:
    found = other.plan.estimate
    words = [flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else flag for flag in other.flags]
    pairs = (f"{name}: {value}" for name, value in zip(words[::2], words[1::2], strict=False))
    return ShownAlternative(
        title=other.title, arguments="; ".join(pairs), note=other.note, changes_convergence=other.changes_convergence,
        plan=other.plan.id,
        settings=shown(other.plan).settings, step_seconds=rounded(found.step_seconds),
        tokens_per_second=rounded(found.tokens_per_second), peak_memory_gib=rounded(found.peak_memory_bytes / GIB),
        host_memory_gib_per_node=rounded(found.host_memory_bytes_per_node / GIB),
    )  # fmt: skip


def _differences(found: Comparison) -> Iterator[ShownDifference]:
    for kind, differences in (("situation", found.situation), ("setting", found.settings), ("card", found.cards)):
        for item in differences:
            yield ShownDifference(kind=kind, name=item.name, first=item.first, second=item.second)
    for kind, figures, unit in (("figure", found.figures, 1), ("memory", found.memory, GIB), ("time", found.time, 1)):
        for figure in figures:
            first, second = (None if value is None else rounded(value / unit) for value in (figure.first, figure.second))
            yield ShownDifference(kind=kind, name=figure.name, first=first, second=second)


def _explained(found: Explanation, setting: str) -> Iterator[Any]:
    yield from (_decision(item) for item in found.decisions if setting in ("", item.setting.rpartition(".")[2]))
    if not setting:
        yield from (CardRemark(kind="reason", card=item.card, policy=item.policy, text=item.text) for item in found.others)
        yield from (
            CardRemark(kind="advice", card=item.card, policy="", text=" ".join((item.intent, *item.texts))) for item in found.advice
        )


def _decision(item: Decision) -> ShownDecision:
    cards = tuple(f"{reason.card} {reason.policy} ({reason.effect}): {reason.text}" for reason in item.reasons)
    return ShownDecision(
        setting=item.setting, value=item.value, cards=cards, changes_convergence=item.changes_convergence,
        otherwise={str(other.value): f"{other.obstacle.value}: {other.text}" for other in item.why_not},
    )  # fmt: skip
