"""Plans of given candidates: priced together as outlines, options resolved by the cards, then completed with reasons and id."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from strategist.bound.lower_bound import lower_bound
from strategist.cards.deck import Deck
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, show_value
from strategist.contract.plan import Digests, Plan
from strategist.contract.stack import NATIVE, Stack, native_stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.heterogeneous_nodes import price_heterogeneous
from strategist.cost.shipped_calibrations import factors
from strategist.cost.simulated_steps import simulated, with_simulated
from strategist.errors import InputError
from strategist.expr.columns import row_of, table
from strategist.frozen import frozen
from strategist.planning.ranking import PlanningContext, backend_stack, with_resolved
from strategist.profiles.situation import Situation
from strategist.profiles.stacks import find_stack
from strategist.programs.backends import backends, load_backend
from strategist.rules.backend import ANY_BACKEND
from strategist.rules.policy_evaluation import reasons
from strategist.search.facts import estimate_facts, situation_facts

Stacks = Sequence[Stack | None]
"""The stack that prices each candidate; None for the built-in runtime."""


@frozen
class Price:
    """A candidate's estimate before its options are resolved, the ``split`` of its pipeline, and the ``stack`` that priced it."""

    estimate: Estimate
    split: str
    stack: Stack


def stacks_of(situation: Situation, candidates: Sequence[Candidate], stack: Stack | None) -> Stacks:
    """The given ``stack`` for all candidates or, without one, those of the requested back end."""
    return [stack or backend_stack(situation, chosen) for chosen in candidates]


def estimate_of(
    situation: Situation, chosen: Candidate, *, calibration: Calibration | None = None, stack: Stack | None = None
) -> Estimate:
    """The price of one candidate, without the rest of a plan; for the requested back end, or for a ``stack``.

    Raises:
        InputError: it breaks a law of layout or knobs.
    """
    return estimates(situation, [chosen], calibration, stacks_of(situation, [chosen], stack))[0]


def estimates(
    situation: Situation, candidates: Sequence[Candidate], calibration: Calibration | None, stacks: Stacks
) -> list[Estimate]:
    """The prediction for each candidate; steps with stages are simulated. Candidates of one stack are priced as one table.

    Raises:
        InputError: a candidate breaks a law of layout or knobs.
    """
    model, cluster, workload = situation.model, situation.cluster, situation.request.workload
    tables: dict[tuple[Stack | None, Stack, bool], list[int]] = defaultdict(list)
    for index, (chosen, stack) in enumerate(zip(candidates, stacks, strict=True)):
        if violations := chosen.violations(model, workload, cluster.devices):
            raise InputError("candidate", violations[0], "change a setting that the law names")
        tables[stack, _used_stack(chosen, workload, stack), chosen.options.pp_split == "weighted"].append(index)
    found: dict[int, Estimate] = {}
    for (stack, used_stack, weighted), rows in tables.items():
        known = factors(calibration, cluster, stack)
        columns = table([row_of(candidates[row], candidates[row].accumulation(workload)) for row in rows])
        simulations = simulated(model, cluster, workload, columns, known, used_stack, weighted=weighted)
        priced = price_heterogeneous(model, cluster, workload, columns, known, used_stack)
        priced = with_simulated(priced, simulations, range(len(rows)))
        found |= {row: priced.estimate(place) for place, row in enumerate(rows)}
    return [found[index] for index in range(len(candidates))]


def _used_stack(chosen: Candidate, workload: Workload, stack: Stack | None) -> Stack:
    """The given stack, or that of the native back end."""
    return stack or native_stack(chosen.options, workload.optimizer)


def resolved_outlines(
    situation: Situation, candidates: Sequence[Candidate], context: PlanningContext, stack: Stack | None = None
) -> list[Plan]:
    """Outlines of candidates with their options resolved by the cards; priced for the requested back end, or for a ``stack``.

    Raises:
        InputError: a candidate breaks a law.
    """
    workload, stacks = situation.request.workload, stacks_of(situation, candidates, stack)
    priced = estimates(situation, candidates, context.calibration, stacks)
    prices = [
        Price(estimate=estimate, split=chosen.options.pp_split, stack=_used_stack(chosen, workload, given))
        for chosen, estimate, given in zip(candidates, priced, stacks, strict=True)
    ]
    return resolved(situation, candidates, prices, context, stacks)


def resolved(
    situation: Situation, candidates: Sequence[Candidate], prices: Sequence[Price], context: PlanningContext, stacks: Stacks
) -> list[Plan]:
    """Outlines of candidates with their options resolved. A candidate whose options change its price is priced again: by another
    split of the pipeline, or another kernel of the optimizer.
    """
    workload, found = situation.request.workload, [price.estimate for price in prices]
    chosen = [with_resolved(situation, each, price.estimate, context.deck) for each, price in zip(candidates, prices, strict=True)]
    for each in chosen:
        _check_options(situation, each)
    repriced = [
        row
        for row, (each, price, stack) in enumerate(zip(chosen, prices, stacks, strict=True))
        if _used_stack(each, workload, stack) is not price.stack or (each.layout.pp > 1 and each.options.pp_split != price.split)
    ]
    anew = estimates(situation, [chosen[row] for row in repriced], context.calibration, [stacks[row] for row in repriced])
    for row, estimate in zip(repriced, anew, strict=True):
        found[row] = estimate
    return [outline_of(situation, *each, context=context) for each in zip(chosen, found, stacks, strict=True)]


def _check_options(situation: Situation, chosen: Candidate) -> None:
    """Only fixed options can break a law: the others are resolved within the laws."""
    if violations := chosen.option_violations():
        fix_options = "".join(f" --fix {name}={show_value(value)}" for name, value in situation.request.fix.items())
        raise InputError(fix_options.strip(), violations[0], "fix less, or what the law names as well")


def outline_of(situation: Situation, chosen: Candidate, estimate: Estimate, stack: Stack | None, context: PlanningContext) -> Plan:
    """A plan without what no comparison of plans reads: lower bound, reasons, back ends and id, which :func:`completed` adds."""
    calibration = factors(context.calibration, situation.cluster, stack)
    return Plan(
        model=situation.model,
        cluster=situation.cluster,
        workload=situation.request.workload,
        candidate=chosen,
        estimate=estimate,
        reasons=(),
        digests=Digests(deck=context.deck.digest, profiles=situation.digest, calibration=calibration.digest),
        stack=stack.name if stack else "",
        request=situation.request,
    )


def completed(plan: Plan, deck: Deck, stack: Stack | None = None) -> Plan:
    """The plan of an outline, with its lower bound, reasons, back ends and id. ``stack``: the one that priced it, if it is not the
    shipped one of that name.
    """
    stack = stack if stack and stack.name == plan.stack else find_stack(plan.stack)
    model, cluster, workload, chosen = plan.model, plan.cluster, plan.workload, plan.candidate
    facts = {**situation_facts(model, cluster, workload), **estimate_facts(plan.estimate)}
    requested = {plan.request.backend} if plan.request else set[str]()
    known = (*backends(), *(requested - {ANY_BACKEND, *backends()}))  # a program is checked only if it was requested
    return replace(
        plan,
        estimate=plan.estimate.with_bound(lower_bound(model, cluster, workload, chosen, stack or NATIVE)),
        reasons=reasons(deck, facts, row_of(chosen, chosen.accumulation(workload))),
        backends=tuple(backend.name for backend in map(load_backend, known) if backend.runs(chosen, model, workload, facts)),
    ).identified()
