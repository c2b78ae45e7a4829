"""The tools of plans: plan, explain, why_not, simulate and export."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from strategist import api
from strategist.agent import asked
from strategist.agent.room import Room
from strategist.agent.sheet import Sheet
from strategist.agent.shown import ShownPlan, parts, rounded, shown
from strategist.contract.answer import Answer, Way
from strategist.contract.explanation import Decision, Explanation
from strategist.contract.knobs import KnobValue
from strategist.profiles.request_file import parse_fix, setting_name
from strategist.units import GIB


@dataclass(frozen=True, kw_only=True)
class PlanAnswer:
    """``verdict`` says in words whether it fits; the counts are of candidates. Items: plans by rank, ways to do it otherwise,
    parts of the best plan, what was assumed, the best plan's reasons, and what cards dropped."""

    verdict: str
    candidates: int
    feasible: int
    too_large: int
    host_too_small: int
    best: ShownPlan | None
    changes_convergence: tuple[str, ...]
    not_as_shipped: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ShownWay:
    """Another way: what to change in the arguments, and what the best plan is then."""

    kind: str = "way"
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


@dataclass(frozen=True, kw_only=True)
class Training:
    """What training on the tokens asked for takes with the best plan; unknown is null."""

    kind: str = "training"
    steps: int
    days: float
    price_dollars: float | None
    productive_ratio: float


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a card says (reason, dropped), or what was assumed, for which there is no card."""

    kind: str
    card: str
    policy: str
    text: str
    candidates: int = 0


@dataclass(frozen=True, kw_only=True)
class ExplainAnswer:
    """Items: each setting with the cards that asked for it; without a card, cost decided."""

    plan: ShownPlan
    not_as_shipped: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ShownDecision:
    """``otherwise`` has, by other value, what stands against it."""

    setting: str
    value: KnobValue
    cards: tuple[str, ...]
    otherwise: dict[str, str]
    changes_convergence: bool


@dataclass(frozen=True, kw_only=True)
class WhyNotAnswer:
    """``obstacle``: illegal, forbidden, too large, host too small, slower, equally fast or faster. ``instead`` is the plan that it
    would be."""

    setting: str
    value: KnobValue
    obstacle: str
    text: str
    card: str
    policy: str
    instead: ShownPlan | None


@dataclass(frozen=True, kw_only=True)
class SimulateAnswer:
    """``verdict``: fits, too large or open. Items: each rank. ``predicted_gib`` is what the cost model says of the same."""

    plan: str
    verdict: str
    why: str
    capacity_gib: float
    predicted_gib: float | None


@dataclass(frozen=True, kw_only=True)
class SimulatedRank:
    """What one rank holds at its fullest instant, and what it exchanges in a step, as axis and collective."""

    rank: int
    peak_memory_gib: float
    at: str
    memory_gib: dict[str, float]
    traffic_gib: dict[str, float]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExportAnswer:
    """``files`` lie in the workspace; ``command`` starts them in their folder. Items: what the format cannot say."""

    format: str
    files: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding of a file."""

    code: str
    level: str
    message: str
    do: str
    line: int | None = None


def plan(room: Room, arguments: dict[str, Any]) -> Sheet:
    """Ranked plans for a request."""
    request = asked.request(room, arguments)
    answer = api.plan(request, **asked.deciding(room, arguments), top=arguments.get("top", 3))
    for made in (*answer.plans, *(way.plan for way in answer.ways)):
        gpus = request.gpus if made.cluster == answer.cluster else made.cluster.name
        room.keep(made, replace(request, gpus=gpus, workload=made.workload))
    head = PlanAnswer(
        verdict=answer.verdict, candidates=answer.candidates, feasible=answer.feasible, too_large=answer.too_large,
        host_too_small=answer.host_too_small, best=shown(answer.plans[0]) if answer.plans else None,
        changes_convergence=answer.changes_convergence, not_as_shipped=answer.not_as_shipped,
    )  # fmt: skip
    return Sheet(head=head, items=tuple(_planned(answer)))


def explain(room: Room, arguments: dict[str, Any]) -> Sheet:
    """What decided each setting of a plan, or one of them."""
    asked_for = arguments.get("setting", "")
    setting = asked_for and setting_name(asked_for, f"setting {asked_for}")
    found = api.explain(room.plan(arguments["plan"]), **asked.deciding(room, arguments))
    head = ExplainAnswer(plan=shown(found.plan), not_as_shipped=found.not_as_shipped)
    return Sheet(head=head, items=tuple(_explained(found, setting)))


def why_not(room: Room, arguments: dict[str, Any]) -> Sheet:
    """What stands against another value of a setting."""
    name, value = parse_fix(arguments["setting"])
    found = api.why_not(room.plan(arguments["plan"]), name, value, **asked.deciding(room, arguments))
    if found.plan is not None and (request := room.request(arguments["plan"])) is not None:
        room.keep(found.plan, request)
    return Sheet(
        head=WhyNotAnswer(
            setting=found.setting, value=found.value, obstacle=found.obstacle.value, text=found.text, card=found.card,
            policy=found.policy, instead=None if found.plan is None else shown(found.plan),
        )
    )  # fmt: skip


def simulate(room: Room, arguments: dict[str, Any]) -> Sheet:
    """Ranks of a plan, on tensors without values."""
    found = api.simulate(room.plan(arguments["plan"]), arguments.get("ranks", []))
    proof, predicted = found.proof, found.predicted
    head = SimulateAnswer(
        plan=found.plan_id, verdict=proof.verdict.value, why=proof.why, capacity_gib=rounded(found.capacity_bytes / GIB),
        predicted_gib=None if predicted is None else rounded(predicted.allocated / GIB),
    )  # fmt: skip
    ranks = tuple(
        SimulatedRank(
            rank=rank.rank, peak_memory_gib=rounded(rank.peak_memory_bytes / GIB),
            at=f"{rank.moment.phase} {rank.moment.module}".strip(),
            memory_gib={name: rounded(size / GIB) for name, size in rank.memory.items() if size},
            traffic_gib={f"{flow.axis} {flow.collective}": rounded(flow.message_bytes / GIB) for flow in rank.traffic},
            notes=rank.notes,
        )
        for rank in found.ranks
    )  # fmt: skip
    return Sheet(head=head, items=ranks)


def export(room: Room, arguments: dict[str, Any]) -> Sheet:
    """A plan as another system's files, in a new folder of the workspace."""
    folder = room.workspace.inside(arguments["folder"])
    written = api.export_plan(
        room.plan(arguments["plan"]), arguments["format"], job=arguments.get("job", ""), image=arguments.get("image", ""),
        **asked.decks(room, arguments),
    )  # fmt: skip
    files = tuple(room.workspace.show(path) for path in api.write_files(written, folder))
    items = tuple(Finding(code=item.code, level=item.level.value, message=item.message, do=item.do) for item in written.findings)
    return Sheet(head=ExportAnswer(format=arguments["format"], files=files, command=written.command), items=items)


def _planned(answer: Answer) -> Iterator[Any]:
    yield from map(shown, answer.plans[1:])
    for training in answer.trainings[:1]:
        yield Training(
            steps=training.steps, days=rounded(training.seconds / 86400), productive_ratio=rounded(training.productive_ratio),
            price_dollars=None if training.price is None else rounded(training.price),
        )  # fmt: skip
    yield from map(_way, answer.ways)
    if answer.plans:
        yield parts(answer.plans[0])
    yield from (Said(kind="assumed", card="", policy="", text=note) for note in answer.notes)
    for reason in answer.plans[0].reasons if answer.plans else ():
        yield Said(kind="reason", card=reason.card, policy=reason.policy, text=reason.text)
    for item in answer.dropped:
        yield Said(kind="dropped", card=item.card, policy=item.policy, text=item.because, candidates=item.candidates)


def _way(way: Way) -> ShownWay:
    found = way.plan.estimate
    said = [flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else flag for flag in way.flags]
    pairs = (f"{name}: {value}" for name, value in zip(said[::2], said[1::2], strict=False))
    return ShownWay(
        title=way.title, arguments="; ".join(pairs), note=way.note, changes_convergence=way.changes_convergence, plan=way.plan.id,
        settings=shown(way.plan).settings, step_seconds=rounded(found.step_seconds),
        tokens_per_second=rounded(found.tokens_per_second), peak_memory_gib=rounded(found.peak_memory_bytes / GIB),
        host_memory_gib_per_node=rounded(found.host_memory_bytes_per_node / GIB),
    )  # fmt: skip


def _explained(found: Explanation, setting: str) -> Iterator[Any]:
    yield from (_decision(item) for item in found.decisions if setting in ("", item.setting.rpartition(".")[2]))
    if not setting:
        yield from (Said(kind="reason", card=item.card, policy=item.policy, text=item.text) for item in found.others)
        yield from (
            Said(kind="advice", card=item.card, policy="", text=" ".join((item.intent, *item.texts))) for item in found.advice
        )


def _decision(item: Decision) -> ShownDecision:
    said = tuple(f"{reason.card} {reason.policy} ({reason.effect}): {reason.text}" for reason in item.reasons)
    return ShownDecision(
        setting=item.setting, value=item.value, cards=said, changes_convergence=item.changes_convergence,
        otherwise={str(other.value): f"{other.obstacle.value}: {other.text}" for other in item.alternatives},
    )  # fmt: skip
