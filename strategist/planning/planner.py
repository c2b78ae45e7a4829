"""Planner: turns a request into ranked plans with prices and reasons, and into alternatives."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf

import numpy as np

from strategist.alternatives.change import Change
from strategist.alternatives.convergence import convergence_changes
from strategist.alternatives.resources import changes, last_resorts
from strategist.cards.deck import Deck
from strategist.contract.answer import Alternative, Answer, BackendPlan, Dropped
from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate
from strategist.contract.model import ModelShape
from strategist.contract.pipeline_stages import stream_rounds
from strategist.contract.plan import Plan
from strategist.contract.progress import counted
from strategist.contract.request import Request
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.shipped_calibrations import factors, unseen_devices
from strategist.cost.simulated_steps import MAX_PASSES, Simulated, simulated, streamed_round
from strategist.cost.training_time import training
from strategist.errors import InputError
from strategist.expr.columns import row_of, table
from strategist.planning.candidate_plans import Price, completed, estimate_of, outline_of, resolved, resolved_outlines, stacks_of
from strategist.planning.preferred_devices import best_size, throughput
from strategist.planning.ranking import PlanningContext, backend_stack, blocking_laws, ranking_of
from strategist.planning.verdict import verdict
from strategist.profiles.heterogeneous_clusters import node_differences
from strategist.profiles.situation import Situation, situation as resolve_situation
from strategist.profiles.stacks import stack_of_plan
from strategist.search.downsampling import best_distinct
from strategist.search.needed_candidates import NEAR_TIE, objective_cost
from strategist.search.rank import ALL_TIMED, Places, Ranking, candidate
from strategist.search.simulated_reranking import SEARCHED_PLACES


def answer(request: Request, *, deck: Deck, calibration: Calibration | None = None, top: int = 5) -> Answer:
    """The best plans for a request, which differ in kind, and alternatives. Equal requests get equal answers.

    Raises:
        InputError: the request names something unknown, or leaves no legal candidate at any cost.
    """
    *_, whole = answer_stages(request, deck=deck, calibration=calibration, top=top)
    return whole


def answer_stages(request: Request, *, deck: Deck, calibration: Calibration | None = None, top: int = 5) -> Iterator[Answer]:
    """The answer as it becomes known: without alternatives if something fits, then the whole one. Alternatives change nothing else
    of an answer with plans.

    Raises:
        InputError: as :func:`answer`.
    """
    context = PlanningContext(deck=deck, calibration=calibration)
    situation, ranking, devices = best_size(resolve_situation(request), context, top)
    plans = tuple(_plan(situation, ranking, int(row), context) for row in best_distinct(ranking, top))
    of_plans = partial(_answer, request, situation, ranking, plans, devices, context)
    if plans:
        yield of_plans(())
    yield of_plans(_alternatives(situation, plans[0] if plans else None, ranking.fits_without_hosts, context))


def _answer(
    request: Request,
    situation: Situation,
    ranking: Ranking,
    plans: tuple[Plan, ...],
    devices: str,
    context: PlanningContext,
    alternatives: tuple[Alternative, ...],
) -> Answer:
    """The answer with these plans and alternatives; ``devices`` is a note on unused devices."""
    blocking = blocking_laws(situation, ranking, context)
    return Answer(
        request=situation.request,
        model=situation.model,
        cluster=situation.cluster,
        notes=(*_untested_price_notes(situation, context.calibration), *situation.notes),
        verdict=" ".join(
            (
                verdict(situation, ranking, plans, alternatives, context.deck, blocking) + devices,
                *node_differences(situation.cluster),
            )
        ),
        candidates=ranking.candidates,
        dropped=tuple(
            Dropped(card=drop.card, policy=drop.policy, because=drop.because, candidates=drop.rows) for drop in ranking.dropped
        ),
        too_large=ranking.too_large,
        host_too_small=ranking.host_too_small,
        feasible=ranking.feasible,
        plans=plans,
        alternatives=alternatives,
        changes_convergence=convergence_changes(plans[0], request) if plans else (),
        trainings=tuple(training(plan, request.tokens) for plan in plans) if request.tokens else (),
    )


def _untested_price_notes(situation: Situation, calibration: Calibration | None) -> tuple[str, ...]:
    """A note on GPUs of which no published run has tested the price; none if there are none, or if trials calibrate the price."""
    names = () if calibration else unseen_devices(situation.cluster)
    price = "has tested the price: it rests on the device's profile, its interval on other devices"
    return (f"no published run on {' and '.join(names)} {price}",) if names else ()


def by_backend(
    request: Request, names: Sequence[str], *, deck: Deck, calibration: Calibration | None = None
) -> tuple[BackendPlan, ...]:
    """The best plan of each back end for a request, fastest first; back ends without a plan come last."""
    context = PlanningContext(deck=deck, calibration=calibration)

    def best(name: str) -> BackendPlan:
        try:
            situation, ranking, _ = best_size(resolve_situation(replace(request, backend=name)), context, 1)
        except InputError as error:
            return BackendPlan(backend=name, plan=None, why=error.law)
        plans = [_plan(situation, ranking, int(row), context) for row in best_distinct(ranking, 1)]
        return BackendPlan(backend=name, plan=plans[0]) if plans else BackendPlan(backend=name, plan=None, why="no plan fits")

    found = [best(name) for name in counted(names, "back ends")]
    return tuple(
        sorted(found, key=lambda backend_plan: -backend_plan.plan.estimate.tokens_per_second if backend_plan.plan else 0.0)
    )


def ranked(
    situation: Situation, *, deck: Deck, calibration: Calibration | None = None, limit: int | None = None
) -> tuple[Plan, ...]:
    """Every candidate that is allowed and fits, as plans, best first."""
    outlines = ranked_outlines(situation, deck=deck, calibration=calibration, limit=limit)
    return tuple(completed(outline, deck) for outline in outlines)


def ranked_outlines(
    situation: Situation,
    *,
    deck: Deck,
    calibration: Calibration | None = None,
    limit: int | None = None,
    objectives: Sequence[str] = (),
) -> tuple[Plan, ...]:
    """Like :func:`ranked`, but outlines, which take a fraction of its time. With several ``objectives``, at most ``limit`` of them
    along their Pareto front.
    """
    first = None if limit is None or len(objectives) > 1 else max(limit, SEARCHED_PLACES)
    context = PlanningContext(deck=deck, calibration=calibration)
    ranking = ranking_of(situation, context, Places(all_timed=first is None, first=first))
    rows = ranking.order[:limit]
    if limit is not None and len(rows) < len(ranking.order) and len(objectives) > 1:
        from strategist.search.pareto_front import spread_over_front  # only studies ask for a front

        values = np.stack([objective_cost(ranking.priced, name)[ranking.order] for name in objectives], axis=1)
        rows = ranking.order[spread_over_front(values, limit)]
    return tuple(_outlines(situation, ranking, rows.tolist(), context))


def enumerated(situation: Situation, *, deck: Deck, calibration: Calibration | None = None) -> Ranking:
    """All candidates in order, the first places decided by simulation; candidates that do not fit have a step time, too."""
    return ranking_of(situation, PlanningContext(deck=deck, calibration=calibration), ALL_TIMED)


def resolve_candidate(
    situation: Situation, chosen: Candidate, *, deck: Deck, calibration: Calibration | None = None, stack: Stack | None = None
) -> Plan:
    """One candidate as a plan, its options resolved by the cards; priced for the requested back end, or for a ``stack``.

    Raises:
        InputError: it breaks a law of layout or knobs.
    """
    [plan] = resolved_outlines(situation, [chosen], PlanningContext(deck=deck, calibration=calibration), stack)
    return completed(plan, deck, stack)


def price_candidate(
    situation: Situation, chosen: Candidate, *, deck: Deck, calibration: Calibration | None = None, stack: Stack | None = None
) -> Plan:
    """One candidate as a plan, with its own options, whether or not the cards allow it; priced for the requested back end, or for a
    ``stack``.

    Raises:
        InputError: it breaks a law of layout or knobs.
    """
    stack = stack or backend_stack(situation, chosen)
    estimate = estimate_of(situation, chosen, calibration=calibration, stack=stack)
    context = PlanningContext(deck=deck, calibration=calibration)
    return completed(outline_of(situation, chosen, estimate, stack, context), deck, stack)


def simulated_step(plan: Plan, calibration: Calibration | None = None) -> Simulated:
    """The simulated step of a plan; without a pipeline, its micro-batches in sequence.

    Raises:
        InputError: steps of this kind are not simulated.
    """
    name, layout, knobs = f"plan {plan.id}", plan.candidate.layout, plan.candidate.knobs
    if knobs.offload == "streamed":
        raise InputError(name, "streamed stages follow no schedule that is simulated", "plan with another offload")
    if plan.cluster.groups:
        raise InputError(name, "a step on nodes that differ is not simulated", "plan for nodes of one kind")
    if layout.pp * knobs.pp_virtual_stages * plan.accumulation > MAX_PASSES:
        law = f"a step of more than {MAX_PASSES:,} forward passes is not simulated"
        raise InputError(name, law, "plan with fewer sequences a step")
    stack = stack_of_plan(plan)
    known = factors(calibration, plan.cluster, stack)
    return _simulated(plan.model, plan.cluster, plan.workload, plan.candidate, known, stack, min_pp=1)[0]


def simulated_round(plan: Plan, calibration: Calibration | None = None) -> tuple[Simulated, int]:
    """One simulated round of a plan with streamed stages, and the number of rounds per step."""
    stack = stack_of_plan(plan)
    known, columns = factors(calibration, plan.cluster, stack), table([row_of(plan.candidate, plan.accumulation)])
    found = streamed_round(plan.model, plan.cluster, plan.workload, columns, known, stack)
    return found, stream_rounds(plan.accumulation, plan.candidate.layout.pp)


def _simulated(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    chosen: Candidate,
    calibration: Calibration,
    stack: Stack,
    min_pp: int = 2,
) -> tuple[Simulated, ...]:
    """Simulates one candidate, its stages split as its options say."""
    columns, weighted = table([row_of(chosen, chosen.accumulation(workload))]), chosen.options.pp_split == "weighted"
    return simulated(model, cluster, workload, columns, calibration, stack, weighted=weighted, min_pp=min_pp)


def best_of(situation: Situation, ranking: Ranking, context: PlanningContext) -> Plan:
    """The first plan of a ranking that is not empty."""
    return _plan(situation, ranking, int(ranking.order[0]), context)


def _plan(situation: Situation, ranking: Ranking, row: int, context: PlanningContext) -> Plan:
    [outline] = _outlines(situation, ranking, [row], context)
    return completed(outline, context.deck)


def _outlines(situation: Situation, ranking: Ranking, rows: Sequence[int], context: PlanningContext) -> list[Plan]:
    candidates = [candidate(ranking.columns, row) for row in rows]
    stacks = stacks_of(situation, candidates, None)
    prices = [
        Price(estimate=ranking.priced.estimate(row), split="weighted" if row in ranking.weighted else "even", stack=stack or NATIVE)
        for row, stack in zip(rows, stacks, strict=True)
    ]
    return resolved(situation, candidates, prices, context, stacks)


def _alternatives(
    situation: Situation, best: Plan | None, fits_without_hosts: bool, context: PlanningContext
) -> tuple[Alternative, ...]:
    """The best plan after each change that helps; if nothing else does, after the first of the last resorts."""
    possible_changes = tuple(changes(situation, best, fits_without_hosts))
    found = [
        alternative for change in counted(possible_changes, "alternatives") if (alternative := _alternative(change, context, best))
    ]
    if best is None:
        resorts = (_alternative(change, context, None) for change in last_resorts(situation))
        return tuple(found) or tuple(islice(filter(None, resorts), 1))
    return tuple(sorted(found, key=lambda alternative: -alternative.plan.estimate.tokens_per_second))


def _alternative(change: Change, context: PlanningContext, best: Plan | None) -> Alternative | None:
    """The first situation of a change in which something fits."""
    for situation in change.situations:
        min_tokens_per_second = change.gain * best.estimate.tokens_per_second if best else 0.0
        plan = _best(situation, context, _within_seconds(situation, change, best), min_tokens_per_second)
        if plan is None:
            continue
        resolved = change.resolve(situation, plan)
        plan = plan if resolved is situation else _best(resolved, context) or plan
        if plan.estimate.tokens_per_second < min_tokens_per_second:
            return None
        return Alternative(
            title=change.title(resolved), flags=change.flags(resolved, plan), note=change.note,
            plan=plan, changes_convergence=change.changes_convergence,
        )  # fmt: skip
    return None


def _within_seconds(situation: Situation, change: Change, best: Plan | None) -> float:
    """Longest step with which a change is worth naming, extended by a near tie, within which preferences decide; infinite if the
    objective is not time.
    """
    if best is None or not change.gain or situation.request.objective not in ("throughput", "cost"):
        return inf
    min_tokens_per_second = change.gain * best.estimate.tokens_per_second
    return (1 + NEAR_TIE) * situation.request.workload.tokens_per_step / min_tokens_per_second


def _best(
    situation: Situation, context: PlanningContext, within_seconds: float = inf, min_tokens_per_second: float = 0.0
) -> Plan | None:
    """The best plan with a step ``within_seconds``; None if nothing fits or it is slower than ``min_tokens_per_second``."""
    try:
        ranking = ranking_of(situation, context, Places(first=SEARCHED_PLACES, within_seconds=within_seconds))
        fast_enough = len(ranking.order) and throughput(situation, ranking) >= min_tokens_per_second
        return best_of(situation, ranking, context) if fast_enough else None
    except InputError:  # no legal candidate on this size: the next one may have some
        return None
