"""The use-cases of one plan: what it costs, what decided it, what its step looks like. ``strategist.api`` hands them out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist import planner
from strategist.api_cards import Folders, Ids, load_cards, not_as_shipped
from strategist.cards.deck import Deck
from strategist.contract.answer import Answer
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.simulation import Proof, Verdict
from strategist.cost.calibration import load_calibration
from strategist.errors import InputError
from strategist.expr.evaluate import Facts
from strategist.profiles.situation import Situation, situation
from strategist.profiles.stacks import find_stack
from strategist.programs.backends import backends
from strategist.progress import counted
from strategist.search.facts import situation_facts
from strategist.ways.convergence import convergence_changes

if TYPE_CHECKING:
    from strategist.contract.comparison import Comparison
    from strategist.contract.explanation import Alternative, Explanation
    from strategist.contract.simulation import Simulation
    from strategist.executors.simulator import OnRank
    from strategist.explain import Price


def plan(
    request: Request, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None, top: int = 5
) -> Answer:
    """Ranked plans for a request, and the ways around them.

    Args:
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: the file of what a study taught, such as ``study(...).calibration``.
        top: so many plans at most.

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
    deck = load_cards(cards, without)
    answer = planner.answer(request, deck=deck, calibration=load_calibration(calibration), top=top)
    return replace(answer, not_as_shipped=not_as_shipped(deck, without))


def by_backend(answer: Answer, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> Answer:
    """The answer with the best plan for its request of each back end of ours and of each format.

    >>> from strategist import Request, plan
    >>> from strategist.api import by_backend
    >>> answer = by_backend(plan(Request(model="8b", gpus="8xH100"), top=1))
    >>> answer.backends[0].backend
    'megatron-lm'
    """
    from strategist.formats.catalog import formats

    deck, factors = load_cards(cards, without), load_calibration(calibration)
    found = planner.by_backend(answer.request, (*backends(), *formats()), deck=deck, calibration=factors)
    return replace(answer, backends=found)


def price(
    request: Request,
    candidate: Candidate,
    *,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> Plan:
    """The plan of a candidate that somebody already has, whether or not it fits and whatever cards say of it; the request says for
    which model, devices and workload.

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
    factors = load_calibration(calibration)
    return planner.price_candidate(situation(request), candidate, deck=load_cards(cards, without), calibration=factors)


def explain(plan: Plan, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> "Explanation":
    """What decided each setting of a plan.

    Raises:
        InputError, FileError: the plan breaks a law, or a card or the calibration is wrong.

    >>> from strategist import Request, plan
    >>> from strategist.api import explain
    >>> best = plan(Request(model="32b", gpus="8x24GB"), top=1).plans[0]
    >>> {decision.setting: decision.value for decision in explain(best).decisions}["offload"]
    'streamed'
    """
    from strategist.explain import explain as explain_plan

    plan, deck, known, price, settle = _priced(plan, load_cards(cards, without), calibration)
    explanation = explain_plan(plan, deck=deck, known=known, price=price, settle=settle)
    return replace(explanation, not_as_shipped=not_as_shipped(deck, without))


def compare(first: Plan, second: Plan) -> "Comparison":
    """In what two plans differ, of settings and of figures.

    >>> from strategist import Request, plan
    >>> from strategist.api import compare
    >>> first, second = (plan(Request(model="8b", gpus="8xH100", fix={"pp": 1, "tp": tp})).plans[0] for tp in (1, 2))
    >>> [found.name for found in compare(first, second).settings if found.name.startswith("layout")]
    ['layout.dp_shard', 'layout.tp']
    """
    from strategist.compare import compared

    return compared(first, second)


def why_not(
    plan: Plan,
    setting: str,
    value: KnobValue,
    *,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> "Alternative":
    """What stands against another value of one setting.

    Raises:
        InputError, FileError: the plan breaks a law, or a card or the calibration is wrong.

    >>> from strategist import Request, plan
    >>> from strategist.api import why_not
    >>> best = plan(Request(model="8b", gpus="8xH100"), top=1).plans[0]
    >>> why_not(best, "tp", 4).obstacle.value
    'slower'
    """
    from strategist.explain import why_not as why_not_plan

    plan, deck, known, price, settle = _priced(plan, load_cards(cards, without), calibration)
    return why_not_plan(plan, setting, value, deck=deck, known=known, price=price, settle=settle)


def trace(plan: Plan, *, calibration: str | Path | None = None) -> dict[str, Any]:
    """The simulated step of a plan as a document for Chrome's tracing and Perfetto.

    Raises:
        InputError, FileError: the plan breaks a law or follows no schedule, or the calibration is none.
    """
    from strategist.report.trace import trace as traced

    check_legal(plan)
    if plan.candidate.knobs.offload == "streamed":
        raise InputError(f"plan {plan.id}", "streamed stages follow no schedule that is simulated", "plan with another offload")
    if plan.cluster.groups:
        raise InputError(f"plan {plan.id}", "a step on nodes that differ is not simulated", "plan for nodes of one kind")
    return traced(plan, planner.played(plan, load_calibration(calibration)))


def write_trace(plan: Plan, path: str | Path, *, calibration: str | Path | None = None, force: bool = False) -> dict[str, Any]:
    """Writes the trace of a plan; returns what it says of the step.

    Args:
        force: replaces a file that is no trace.

    Raises:
        InputError, FileError: as :func:`trace`, or the place cannot be written.
    """
    from strategist.report.trace import write

    document = trace(plan, calibration=calibration)
    write(document, path, force=force)
    about: dict[str, Any] = document["otherData"]
    return about


def simulate(
    plan: Plan, ranks: Sequence[int] = (), *, whole: bool = False, model_code: str = "", on_rank: "OnRank | None" = None
) -> "Simulation":
    """What ranks of a plan hold and exchange in a step, found without its cluster.

    Args:
        ranks: those that are simulated; none for the first of the pipeline's first and of its last stage.
        whole: every layer and micro-batch is traced, also where a few of them show what all do.
        model_code: MODULE:FUNCTION, which makes an ``nn.Module``, alone or in a tuple with its loss and its plan of tensor
            parallelism; it takes the place of the plan's model.
        on_rank: hears of each as soon as it is done.

    Raises:
        InputError: the plan breaks a law or has no such rank, torch is missing, or it cannot follow what the plan does.
    """
    from strategist.executors.simulator import simulate as simulate_plan

    check_legal(plan)
    return simulate_plan(plan, ranks, whole=whole, model_code=model_code, on_rank=on_rank)


def prove(answer: Answer, *, on_rank: "OnRank | None" = None) -> Answer:
    """The answer with each of its plans simulated; those that fit come first, those that are too large last.

    Raises:
        InputError: torch is missing.
    """
    from strategist.executors.require import require_torch
    from strategist.executors.simulator import prove as prove_plan

    require_torch()
    proofs = [prove_plan(plan, on_rank) for plan in counted(answer.plans, "plans")]
    order = sorted(range(len(proofs)), key=lambda index: _PLACES.index(proofs[index].verdict))
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
    """The verdict after the simulation of the plans in this order."""
    if proofs and proofs[0].verdict is Verdict.TOO_LARGE:
        return f"Simulated, none of the {len(plans)} plans shown fits; before that: {answer.verdict}"
    if plans and plans[0] != answer.plans[0]:
        return f"Simulated, plan {answer.plans[0].id}, predicted to be the best, comes later. {answer.verdict}"
    return answer.verdict


_PLACES = (Verdict.FITS, Verdict.OPEN, Verdict.TOO_LARGE)


def check_legal(plan: Plan) -> None:
    """Plan files are edited by hand: one that breaks a law can be neither run nor priced."""
    if broken := plan.candidate.violations(plan.model, plan.workload, plan.cluster.devices):
        raise InputError(f"plan {plan.id}", broken[0], "plan again")


def _priced(plan: Plan, deck: Deck, calibration: str | Path | None) -> tuple[Plan, Deck, Facts, "Price", "Price"]:
    """What an explanation needs: the plan as today's deck and calibration see it, like what it is compared with; the deck, the
    facts of its situation, and prices in it, as a candidate is and with its options settled."""
    check_legal(plan)
    factors, stack = load_calibration(calibration), find_stack(plan.stack)
    asked = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload)
    within = Situation(request=asked, model=plan.model, cluster=plan.cluster, notes=(), digest=plan.digests.profiles)

    def price(candidate: Candidate) -> Plan:
        return planner.price_candidate(within, candidate, deck=deck, calibration=factors, stack=stack)

    def settle(candidate: Candidate) -> Plan:
        return planner.settle_candidate(within, candidate, deck=deck, calibration=factors, stack=stack)

    today = replace(price(plan.candidate), id=plan.id)
    return today, deck, situation_facts(plan.model, plan.cluster, plan.workload), price, settle
