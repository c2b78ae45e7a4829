"""Rankings of a request: search space, cards, prices, and simulation of the first places."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strategist.cards.deck import Deck
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.options import OPTION_NAMES
from strategist.contract.request import Request
from strategist.contract.settings import full_name, with_settings
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.calibration import Calibration
from strategist.cost.shipped_calibrations import factors
from strategist.errors import InputError
from strategist.expr.columns import Array, row_of
from strategist.expr.evaluate import Facts
from strategist.frozen import frozen
from strategist.planning.verdict import rejecting_laws
from strategist.profiles.situation import Situation
from strategist.profiles.stacks import load_stack
from strategist.programs.backends import backends, load_backend, stack_of
from strategist.rules.backend import ANY_BACKEND
from strategist.rules.policy_evaluation import Rejection
from strategist.search.blocks import Grids, Space
from strategist.search.facts import estimate_facts, situation_facts
from strategist.search.needed_candidates import NEAR_TIE, objective_cost
from strategist.search.options import forced_options, with_options
from strategist.search.pricing import ConditionalPricing, Pricing
from strategist.search.rank import ALL_COUNTED, Places, Ranking, candidate, rank
from strategist.search.simulated_reranking import reranked
from strategist.search.space import layout_blocks, space
from strategist.search.space_constraints import SpaceConstraints

SIMULATED_PLACES = 5
"""Number of first places of a ranking that are decided by simulated pipelines."""

MOST_CHECKED = 64
"""Most candidates of a near tie that are checked against the back ends."""

DEFAULT_CANDIDATE = Candidate(layout=Layout(), knobs=Knobs())
"""A candidate without features: if a back end refuses it, the cause is the model, the workload or the device."""


@dataclass
class Spaces:
    """Cache of the spaces enumerated for one answer: alternatives share spaces, or grids of knobs."""

    spaces: dict[str, Space] = field(default_factory=dict)
    grids: dict[str, Grids] = field(default_factory=dict)
    layout_blocks: dict[str, Array] = field(default_factory=dict)
    last: tuple[Any, Ranking] | None = None
    """The latest ranking with its inputs: two alternatives may lead to the same situation."""

    def of(self, situation: Situation, constraints: SpaceConstraints) -> Space:
        """The space of a situation. The train mode matters to float8 only; an allowed optimizer or batch does not change a
        space.
        """
        cluster, workload = situation.cluster, situation.request.workload
        constraints = constraints.of_settings()
        arithmetic = (workload.precision, workload.train) if "float8" in constraints.open else ()
        kind = repr((arithmetic, constraints))
        sizes = cluster.nodes, cluster.gpus_per_node, workload.seq_len, workload.global_batch
        key = repr((sizes, kind))
        if key not in self.spaces:
            shared = self._layout_blocks(situation, constraints, sizes)
            self.spaces[key] = space(situation.model, cluster, workload, constraints, self.grids.setdefault(kind, {}), shared)
        return self.spaces[key]

    def _layout_blocks(self, situation: Situation, constraints: SpaceConstraints, sizes: tuple[int, ...]) -> Array:
        """Legal layouts and micro-batches: they depend on no other knob, so that alternatives that allow or fix one share them."""
        fixed = {name: value for name, value in constraints.fix.items() if name in (*DEGREES, "micro_batch", "async_tp")}
        key = repr((sizes, fixed, constraints.backend))
        if key not in self.layout_blocks:
            self.layout_blocks[key] = layout_blocks(situation.model, situation.cluster, situation.request.workload, constraints)
        return self.layout_blocks[key]


@frozen
class PlanningContext:
    """What decides plans besides a situation: cards, the calibration (None: the shipped one), and the spaces enumerated so far."""

    deck: Deck
    calibration: Calibration | None
    spaces: Spaces = field(default_factory=Spaces)

    def without(self, card: str) -> "PlanningContext":
        """The context without a card."""
        return PlanningContext(deck=self.deck.without(card), calibration=self.calibration)


def ranking_of(situation: Situation, context: PlanningContext, places: Places = ALL_COUNTED) -> Ranking:
    """The candidates in order, the first places decided by simulation."""
    spaces = context.spaces
    request, constraints = situation.request, constraints_of(situation.request)
    settings = constraints.of_settings()
    key = (situation.model, situation.cluster, request.workload, settings, request.objective, request.confidence, places)
    if spaces.last is None or spaces.last[0] != key:
        spaces.last = None  # one is enough to hold
        spaces.last = key, _new_ranking(situation, context, places)
    return spaces.last[1]


def _new_ranking(situation: Situation, context: PlanningContext, places: Places) -> Ranking:
    request, model, cluster = situation.request, situation.model, situation.cluster
    constraints = constraints_of(request)
    facts = situation_facts(model, cluster, request.workload)
    backend_options = forced_options(SpaceConstraints(backend=constraints.backend))
    default_candidate = with_settings(DEFAULT_CANDIDATE, {name.partition(".")[2]: value for name, value in backend_options.items()})
    if refusals := constraints.backend.refusals(default_candidate, model, request.workload, facts):
        do = "change the request, or ask which back ends can: plan --show backends"
        raise InputError(f"--backend {request.backend}", refusals[0], do)
    for name, value in request.fix.items():
        if reason := constraints.backend.unsupported_value(full_name(name), value):
            do = "fix another value, or ask which back ends take it: strategist plan --show backends"
            raise InputError(f"--fix {name}={show_value(value)}", reason, do)
    pricing = pricing_of(situation, context.calibration)
    ranking = rank(
        pricing, context.spaces.of(situation, constraints), constraints=constraints, deck=context.deck,
        objective=request.objective, confidence=request.confidence, places=places,
    )  # fmt: skip

    def weighted(row: int) -> bool:
        chosen, estimate = candidate(ranking.columns, row), ranking.priced.estimate(row)
        chosen = with_resolved(situation, chosen, estimate, context.deck, ("pp_split",))
        return chosen.options.pp_split == "weighted"

    ranking = reranked(ranking, pricing, objective=request.objective, count=SIMULATED_PLACES, weighted=weighted)
    return ranking if request.backend != ANY_BACKEND else _runnable_first(situation, ranking, facts)


def _runnable_first(situation: Situation, ranking: Ranking, facts: Facts) -> Ranking:
    """The ranking, with the first candidate that a shipped back end runs in the first place if it is a near tie of the best one."""
    model, workload = situation.model, situation.request.workload
    cost = objective_cost(ranking.priced, situation.request.objective)[ranking.order]
    known = [load_backend(name) for name in backends()]
    for place in np.flatnonzero(cost <= (1 + NEAR_TIE) * cost.min(initial=np.inf))[:MOST_CHECKED].tolist():
        chosen = candidate(ranking.columns, int(ranking.order[place]))
        if any(backend.runs(chosen, model, workload, facts) for backend in known):
            return replace(ranking, order=np.concatenate([ranking.order[[place]], np.delete(ranking.order, place)]))
    return ranking


def pricing_of(situation: Situation, calibration: Calibration | None) -> Pricing:
    """The pricing of candidates on the requested back end, some of which it may run on another framework."""
    model, cluster, workload = situation.model, situation.cluster, situation.request.workload
    backend, stack = load_backend(situation.request.backend), stack_of(situation.request.backend)
    others = ((item.when, load_stack(item.stack)) for item in backend.stacks)
    return Pricing(
        model=model, cluster=cluster, workload=workload, calibration=factors(calibration, cluster, stack), stack=stack or NATIVE,
        facts=situation_facts(model, cluster, workload) if backend.stacks else {},
        others=tuple(
            ConditionalPricing(when=when, stack=other, calibration=factors(calibration, cluster, other)) for when, other in others
        ),
    )  # fmt: skip


def backend_stack(situation: Situation, chosen: Candidate) -> Stack | None:
    """The stack that prices a candidate on the requested back end; None for the built-in runtime."""
    workload = situation.request.workload
    known = situation_facts(situation.model, situation.cluster, workload)
    return stack_of(situation.request.backend, {**known, **row_of(chosen, chosen.accumulation(workload))})


def constraints_of(request: Request) -> SpaceConstraints:
    """The constraints that a request puts on its space."""
    return SpaceConstraints(fix=request.fix, allow=request.allow, backend=load_backend(request.backend))


def blocking_laws(situation: Situation, ranking: Ranking, context: PlanningContext) -> tuple[Rejection, ...]:
    """The laws that leave no candidate: the first law without whose card some remain, or several that must go together; empty if
    some candidate is allowed.
    """
    laws = rejecting_laws(ranking, context.deck)
    for drop in laws if not ranking.columns.rows else ():
        if ranking_of(situation, context.without(drop.card)).columns.rows:
            return (drop,)
    removed: list[Rejection] = []
    while not ranking.columns.rows and laws:
        removed.append(laws[0])
        context = context.without(laws[0].card)
        ranking = ranking_of(situation, context)
        laws = rejecting_laws(ranking, context.deck)
    return tuple(removed)


def with_resolved(
    situation: Situation, chosen: Candidate, estimate: Estimate, deck: Deck, names: tuple[str, ...] = OPTION_NAMES
) -> Candidate:
    """The candidate with the options ``names`` resolved by the cards, within what the request fixes."""
    model, workload = situation.model, situation.request.workload
    facts = {**situation_facts(model, situation.cluster, workload), **estimate_facts(estimate)}
    return with_options(chosen, model, workload, deck=deck, facts=facts, constraints=constraints_of(situation.request), names=names)
