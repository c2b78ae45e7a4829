"""API of plans: plan, price, explain, compare, simulate, trace. Exported by ``strategist.api``."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist.alternatives.convergence import convergence_changes
from strategist.api.cards import Folders, Ids, load_cards, not_as_shipped
from strategist.cards.deck import Deck
from strategist.contract.answer import Answer
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.plan import Plan
from strategist.contract.progress import counted
from strategist.contract.request import Request
from strategist.contract.settings import CONVERGENCE_SETTINGS, value_of
from strategist.contract.simulation import Proof, Verdict
from strategist.cost.calibration import load_calibration
from strategist.errors import InputError
from strategist.planning import planner
from strategist.profiles.situation import situation, situation_of_plan
from strategist.profiles.stacks import find_stack
from strategist.programs.backends import backends, load_backend
from strategist.rules.backend import ANY_BACKEND
from strategist.search.facts import plan_facts, situation_facts

if TYPE_CHECKING:
    from strategist.contract.comparison import Comparison
    from strategist.contract.explanation import Explanation, WhyNot
    from strategist.contract.simulation import Simulation
    from strategist.executors.simulator import OnRank
    from strategist.planning.explain import PlanExplainer


def plan(
    request: Request, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None, top: int = 5
) -> Answer:
    """Ranked plans for a request, and alternatives.

    Args:
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: file with the calibration of a study, such as ``study(...).calibration``; None for the shipped one.
        top: maximum number of plans.

    Raises:
        InputError, FileError: the request, a card or the calibration is wrong.

    >>> from strategist import Request, Workload, plan
    >>> answer = plan(Request(model="8b", gpus="8xH100", workload=Workload(seq_len=8192)), top=3)
    >>> best = answer.plans[0]
    >>> best.estimate.tokens_per_second > 10_000
    True
    >>> best.estimate.peak_memory_bytes < best.cluster.device.usable_memory_bytes
    True
    """
    *_, whole = plan_stages(request, cards=cards, without=without, calibration=calibration, top=top)
    return whole


def plan_stages(
    request: Request, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None, top: int = 5
) -> Iterator[Answer]:
    """The answer of :func:`plan` as it becomes known: without alternatives if something fits, then the whole one.

    Raises:
        InputError, FileError: as :func:`plan`.

    >>> from strategist import Request
    >>> from strategist.api import plan_stages
    >>> plans_only, whole = plan_stages(Request(model="32b", gpus="8x24GB"))
    >>> plans_only.plans == whole.plans, len(plans_only.alternatives)
    (True, 0)
    """
    request = _with_omitted_cards(request, without)
    if not isinstance(top, int) or top < 1:
        raise InputError(f"top {top!r}", "is not a positive whole number of plans", "write e.g. top=5")
    deck = load_cards(cards, request.without)
    changed = not_as_shipped(deck, request.without)
    for answer in planner.answer_stages(request, deck=deck, calibration=load_calibration(calibration), top=top):
        yield replace(answer, not_as_shipped=changed)


def by_backend(answer: Answer, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> Answer:
    """The answer with the best plan of each built-in back end and of each format for its request.

    >>> from strategist import Request, plan
    >>> from strategist.api import by_backend
    >>> answer = by_backend(plan(Request(model="8b", gpus="8xH100"), top=1))
    >>> answer.backends[0].backend
    'megatron-lm'
    """
    from strategist.formats.catalog import formats

    deck, factors = load_cards(cards, without or answer.request.without), load_calibration(calibration)
    backend_plans = planner.by_backend(answer.request, (*backends(), *formats()), deck=deck, calibration=factors)
    return replace(answer, backends=backend_plans)


def price(
    request: Request,
    candidate: Candidate,
    *,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> Plan:
    """The plan of a given candidate, even if it does not fit or a card forbids it. The request gives model, devices and workload.

    Raises:
        InputError, FileError: the candidate breaks a law, or the request, a card or the calibration is wrong.

    >>> from strategist import Request
    >>> from strategist.api import price
    >>> from strategist.contract.knobs import Candidate, Knobs
    >>> from strategist.contract.layout import Layout
    >>> ours = Candidate(layout=Layout(dp_shard=4, tp=2), knobs=Knobs(recompute="full", micro_batch=2))
    >>> priced = price(Request(model="8b", gpus="8xH100"), ours)
    >>> 1 < priced.estimate.step_seconds < 10
    True
    """
    factors, request = load_calibration(calibration), _with_omitted_cards(request, without)
    return planner.price_candidate(situation(request), candidate, deck=load_cards(cards, request.without), calibration=factors)


def _with_omitted_cards(request: Request, without: Ids) -> Request:
    """The request with these cards also left out.

    Raises:
        InputError: it is no request.
    """
    if not isinstance(request, Request):
        do = "write e.g. Request(model='8b', gpus='8xH100')"
        raise InputError(repr(request), f"is of the type {type(request).__name__}", do)
    return replace(request, without=tuple(dict.fromkeys((*request.without, *without))))


def explain(plan: Plan, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> "Explanation":
    """The explanation of a plan: for each setting, what decided its value.

    Raises:
        InputError, FileError: the plan breaks a law, or a card or the calibration is wrong.

    >>> from strategist import Request, plan
    >>> from strategist.api import explain
    >>> best = plan(Request(model="32b", gpus="8x24GB"), top=1).plans[0]
    >>> {decision.setting: decision.value for decision in explain(best).decisions}["offload"]
    'streamed'
    """
    from strategist.planning.explain import explain as explain_plan

    deck = deck_of(plan, cards, without)
    explanation = explain_plan(*_repriced(plan, deck, calibration))
    return replace(explanation, not_as_shipped=not_as_shipped(deck, _omitted_cards(plan, without)))


def compare(first: Plan, second: Plan) -> "Comparison":
    """Differences between two plans, in settings and in figures.

    >>> from strategist import Request, plan
    >>> from strategist.api import compare
    >>> first, second = (plan(Request(model="8b", gpus="8xH100", fix={"pp": 1, "tp": tp})).plans[0] for tp in (1, 2))
    >>> [found.name for found in compare(first, second).settings if found.name.startswith("layout")]
    ['layout.dp_shard', 'layout.tp']
    """
    from strategist.planning.compare import compared

    return compared(first, second)


def why_not(
    plan: Plan,
    setting: str,
    value: KnobValue,
    *,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> "WhyNot":
    """The best plan with another value of one setting, for the same request, and the reason why it is not the better plan.

    Raises:
        InputError, FileError: the plan breaks a law, or a card or the calibration is wrong.

    >>> from strategist import Request, plan
    >>> from strategist.api import why_not
    >>> best = plan(Request(model="8b", gpus="8xH100"), top=1).plans[0]
    >>> why_not(best, "tp", 4).obstacle.value
    'slower'
    """
    from strategist.planning.explain import why_not as why_not_plan

    repriced, explainer = _repriced(plan, deck_of(plan, cards, without), calibration)
    return why_not_plan(repriced, setting, value, explainer)


def trace(plan: Plan, *, calibration: str | Path | None = None) -> dict[str, Any]:
    """The simulated step of a plan as a trace document for Perfetto and Chrome's tracing.

    Raises:
        InputError, FileError: the plan breaks a law, its kind of step cannot be simulated, or the calibration is wrong.
    """
    from strategist.report.trace import trace as traced

    check_legal(plan)
    return traced(plan, planner.simulated_step(plan, load_calibration(calibration)))


def write_trace(plan: Plan, path: str | Path, *, calibration: str | Path | None = None, force: bool = False) -> dict[str, Any]:
    """Writes the trace of a plan; returns its ``otherData``, which describes the step.

    Args:
        force: overwrites a file that is not a trace.

    Raises:
        InputError, FileError: as :func:`trace`, or the file cannot be written.
    """
    from strategist.report.trace import write

    document = trace(plan, calibration=calibration)
    write(document, path, force=force)
    step_data: dict[str, Any] = document["otherData"]
    return step_data


def simulate(
    plan: Plan, ranks: Sequence[int] = (), *, whole: bool = False, model_code: str = "", on_rank: "OnRank | None" = None
) -> "Simulation":
    """Simulates a step of some ranks of a plan without its cluster: their memory and communication.

    Args:
        ranks: ranks to simulate; empty for the first rank of the first and of the last pipeline stage.
        whole: traces every layer and micro-batch, even if a few of them represent all.
        model_code: MODULE:FUNCTION that returns an ``nn.Module``, alone or in a tuple with its loss and its tensor-parallel
            plan; it replaces the plan's model.
        on_rank: called with each rank as soon as it is simulated.

    Raises:
        InputError: the plan breaks a law or has no such rank, torch is missing, or the plan cannot be simulated.
    """
    from strategist.executors.simulator import simulate as simulate_plan

    check_legal(plan)
    return simulate_plan(plan, ranks, whole=whole, model_code=model_code, on_rank=on_rank)


def prove(answer: Answer, *, on_rank: "OnRank | None" = None) -> Answer:
    """The answer with each of its plans simulated; plans that fit come first, plans that are too large last.

    Raises:
        InputError: torch is missing.
    """
    from strategist.executors.requirements import require_torch
    from strategist.executors.simulator import prove as prove_plan

    require_torch()
    proofs = [prove_plan(plan, on_rank) for plan in counted(answer.plans, "plans")]
    order = sorted(range(len(proofs)), key=lambda index: _VERDICT_ORDER.index(proofs[index].verdict))
    trainings = tuple(answer.trainings[index] for index in order) if answer.trainings else ()
    plans, proven = tuple(answer.plans[index] for index in order), tuple(proofs[index] for index in order)
    return replace(
        answer,
        verdict=_proven_verdict(answer, plans, proven),
        plans=plans,
        proofs=proven,
        trainings=trainings,
        changes_convergence=convergence_changes(plans[0], answer.request) if plans else (),
    )


def _proven_verdict(answer: Answer, plans: tuple[Plan, ...], proofs: tuple[Proof, ...]) -> str:
    """The verdict after the simulation; ``plans`` are in their new order."""
    if proofs and proofs[0].verdict is Verdict.TOO_LARGE:
        return f"Simulated, none of the {len(plans)} plans shown fits; before that: {answer.verdict}"
    if plans and plans[0] != answer.plans[0]:
        return f"Simulated, plan {answer.plans[0].id}, predicted to be the best, comes later. {answer.verdict}"
    return answer.verdict


_VERDICT_ORDER = (Verdict.FITS, Verdict.OPEN, Verdict.TOO_LARGE)


def check_legal(plan: Plan) -> None:
    """Raises InputError for a plan that breaks a law, since plan files are edited by hand."""
    if broken := plan.candidate.violations(plan.model, plan.workload, plan.cluster.devices):
        raise InputError(f"plan {plan.id}", broken[0], "plan again")


def request_of(plan: Plan) -> Request:
    """The request that a plan answers.

    For a plan made by hand, a request that the plan could answer: it allows the convergence settings that the plan changes.
    """
    if plan.request is not None:
        return plan.request
    cluster, settings = plan.cluster, CONVERGENCE_SETTINGS.items()
    return Request(
        model=plan.model.name, gpus=cluster.name, workload=plan.workload, host_memory_bytes=cluster.host_memory_bytes,
        allow=tuple(name for name, default in settings if plan.matters(name) and value_of(plan.candidate, name) != default),
        node_seconds_between_failures=cluster.node_seconds_between_failures, backend=_backend(plan),
    )  # fmt: skip


def _backend(plan: Plan) -> str:
    """The back end that the plan was made for: the one whose stack priced it; ``any`` if there is none."""
    facts = plan_facts(plan)
    return next((name for name in plan.backends if plan.stack and load_backend(name).stack_for(facts) == plan.stack), ANY_BACKEND)


def deck_of(plan: Plan, cards: Folders, without: Ids) -> Deck:
    """The deck without the cards that the plan's request leaves out; ids that are unknown here are ignored."""
    deck = load_cards(cards, without)
    deck_ids = {card.id for card in deck.cards}
    for name in _omitted_cards(plan, ()):
        deck = deck.without(name) if name in deck_ids else deck
    return deck


def _omitted_cards(plan: Plan, without: Ids) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*request_of(plan).without, *without)))


def _repriced(plan: Plan, deck: Deck, calibration: str | Path | None) -> tuple[Plan, "PlanExplainer"]:
    """The plan priced anew by the current deck and calibration, as the plans that it is compared with are, and its explainer."""
    from strategist.planning.candidate_plans import completed, resolved_outlines
    from strategist.planning.explain import PlanExplainer
    from strategist.planning.neighbour_search import Neighbours
    from strategist.planning.ranking import PlanningContext

    check_legal(plan)
    factors, stack = load_calibration(calibration), find_stack(plan.stack)
    plan_situation = situation_of_plan(plan, request_of(plan))

    price = partial(planner.price_candidate, plan_situation, deck=deck, calibration=factors, stack=stack)
    context = PlanningContext(deck=deck, calibration=factors)
    resolve = partial(resolved_outlines, plan_situation, context=context, stack=stack)
    facts = situation_facts(plan.model, plan.cluster, plan.workload)
    search = Neighbours(situation=plan_situation, deck=deck, calibration=factors)
    repriced = replace(price(plan.candidate), id=plan.id, request=plan.request)
    explainer = PlanExplainer(
        deck=deck, known=facts, price=price, resolve=resolve, complete=partial(completed, deck=deck), search=search
    )
    return repriced, explainer
