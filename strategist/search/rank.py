"""Ranking: cards reject candidates, the cost model prices the rest, the objective orders them, and cards' preferences break near
ties.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from strategist.cards.deck import Deck
from strategist.contract.estimate import DEFAULT_CONFIDENCE
from strategist.contract.knobs import KNOB_NAMES, Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.settings import PARTS, with_settings
from strategist.cost.candidate_arrays import Floats
from strategist.cost.price import FEW_ROWS, Priced
from strategist.expr.columns import Array, Columns, joined_to
from strategist.frozen import frozen
from strategist.rules.policy_evaluation import PART_ROWS, Rejection, preferences
from strategist.search.blocks import Space
from strategist.search.candidate_tables import CandidateSet
from strategist.search.card_filter import Allowed, SearchCriteria, allowed_of
from strategist.search.facts import situation_facts
from strategist.search.needed_candidates import Merits, NeededCandidates, objective_cost, without_hosts
from strategist.search.pricing import Pricing
from strategist.search.pruning import Limits, families
from strategist.search.space_constraints import SpaceConstraints

_BLANK = Candidate(layout=Layout(), knobs=Knobs())


@frozen
class Ranking:
    """Allowed candidates with their prices, in order.

    columns: the candidates, one row each.
    prefer: weight of the cards' preferences for each row that fits.
    order: rows that fit, best first.
    candidates: number of candidates before cards were applied.
    dropped: rejections by policy.
    too_large, host_too_small: number of candidates that do not fit the devices, and of the others those that do not fit the hosts.
    feasible: number of candidates that fit.
    fits_without_hosts: whether one of these keeps no state in host memory.
    weighted: rows of simulated pipelines whose stages are split by weight.
    """

    columns: Columns
    priced: Priced
    prefer: Floats
    order: Array
    candidates: int
    dropped: tuple[Rejection, ...]
    too_large: int
    host_too_small: int
    feasible: int
    fits_without_hosts: bool
    weighted: frozenset[int] = frozenset()


@frozen
class Places:
    """The places of a ranking that the caller needs.

    all_timed: whether candidates that do not fit get a step time, too; all candidates are in the table then.
    kinds: if given, all candidates are counted; of many, the table holds those of the ``first`` places and the best of each of the
        first ``kinds`` groups of similar candidates.
    first, within_seconds: otherwise, if only the ``first`` places with a step ``within_seconds`` matter, other candidates and their
        counts are left out as far as lower bounds allow.
    """

    all_timed: bool = False
    first: int | None = None
    kinds: int = 0
    within_seconds: float = np.inf

    @property
    def alone(self) -> bool:
        """Whether only the first places matter, and no counts."""
        return bool(self.first) and not self.kinds


ALL_TIMED, ALL_COUNTED = Places(all_timed=True), Places()


def rank(
    pricing: Pricing,
    space: Space,
    *,
    constraints: SpaceConstraints,
    deck: Deck,
    objective: str,
    confidence: float = DEFAULT_CONFIDENCE,
    places: Places = ALL_TIMED,
) -> Ranking:
    """Ranks all candidates of a ``space``, which the ``constraints`` left. Equal input gives equal order.

    Args:
        confidence: probability with which a candidate must fit.

    Raises:
        InputError: the back end refuses all candidates that the cards allow.
    """
    facts = situation_facts(pricing.model, pricing.cluster, pricing.workload)
    criteria = SearchCriteria(deck=deck, facts=facts, constraints=constraints)
    prices = _Prices(pricing=pricing, criteria=criteria, objective=objective, confidence=confidence, places=places)
    for defaults in (True, False):
        allowed = allowed_of(space, criteria, defaults=defaults)
        found = prices.ranked(allowed)
        allowed.refusals.check(constraints.backend)
        if len(found.order) or not allowed.refusals.refused:
            break  # otherwise the cards' defaults may have left only candidates that the back end refuses
    return replace(found, candidates=space.candidates - allowed.refusals.excluded)


@frozen
class _Prices:
    """How candidates are priced and compared, as in :func:`rank`."""

    pricing: Pricing
    criteria: SearchCriteria
    objective: str
    confidence: float
    places: Places

    def price(self, columns: Columns) -> Priced:
        """Prices of a table."""
        return self.pricing.priced(columns, None if self.places.all_timed else self.confidence)

    def preferences(self, columns: Columns) -> Floats:
        """Weight of the cards' preferences for each candidate."""
        return preferences(self.criteria.deck, self.criteria.facts, columns)

    def ranked(self, allowed: Allowed) -> Ranking:
        """The allowed candidates, priced and in order; of many, unless ``all_timed``, only those that are needed."""
        candidates, places = allowed.candidates, self.places
        if places.all_timed or (candidates.rows <= PART_ROWS and not places.alone):
            return self._all_ranked(next(candidates.tables()), allowed)
        possible = joined_to(self._possible(candidates), PART_ROWS + 1)
        begin = next(possible)
        if places.alone and begin.rows <= PART_ROWS:
            return self._all_ranked(begin, allowed)
        needed = self._needed(chain((begin,), possible))
        if not needed.fits and not places.alone:
            needed = self._needed(joined_to(candidates.tables(PART_ROWS), PART_ROWS + 1))  # those nearest to fitting are shown
        return self._few_ranked(needed, allowed)

    def _possible(self, candidates: CandidateSet) -> Iterator[Columns]:
        """The candidates that lower bounds, if there are any, do not exclude."""
        if not self.pricing.is_bounded:
            return candidates.tables(PART_ROWS)
        margin = self.pricing.memory_margin(self.confidence)
        limits = Limits(step_seconds=self.places.within_seconds, memory_margin=margin)
        found = families(candidates, self.pricing.lower_bounds, limits)

        def could_help(part: Columns) -> Columns:
            fast = part.take(found.time_of(part).of_candidates(self.pricing.model, part) <= limits.step_seconds)
            return fast.take(self.pricing.could_fit(fast, self.confidence))

        return (could_help(part) if part.rows > FEW_ROWS else part for part in found.possible)

    def _needed(self, parts: Iterable[Columns]) -> NeededCandidates:
        needed = NeededCandidates(self.objective, self.confidence, self.preferences, self.places.first, self.places.kinds)
        for part in parts:
            needed.add(part, self.price(part))
        return needed

    def _few_ranked(self, needed: NeededCandidates, allowed: Allowed) -> Ranking:
        columns, preference, order = needed.ranked
        return Ranking(
            columns=columns, priced=self.price(columns), prefer=preference, order=order, candidates=0, dropped=allowed.dropped,
            too_large=allowed.candidates.rows - needed.fits_device, host_too_small=needed.fits_device - needed.fits,
            feasible=needed.fits, fits_without_hosts=needed.fits_without_hosts > 0,
        )  # fmt: skip

    def _all_ranked(self, columns: Columns, allowed: Allowed) -> Ranking:
        priced = self.price(columns)
        fits, hosts = priced.fits_with(self.confidence), priced.fits_host
        fitting, prefer = np.flatnonzero(fits & hosts), np.zeros(columns.rows)
        prefer[fitting] = self.preferences(columns.take(fitting))
        return Ranking(
            columns=columns, priced=priced, prefer=prefer, order=fitting[in_order(priced, prefer, self.objective, fitting)],
            candidates=0, dropped=allowed.dropped, too_large=int(np.count_nonzero(~fits)),
            host_too_small=int(np.count_nonzero(fits & ~hosts)), feasible=len(fitting),
            fits_without_hosts=bool(without_hosts(columns)[fitting].any()),
        )  # fmt: skip


def in_order(priced: Priced, preference: Floats, objective: str, rows: Array) -> Array:
    """Rows in order of merit."""
    merits = Merits(
        cost=objective_cost(priced, objective), host_memory_bytes=priced.host_memory_bytes_per_node,
        preference=preference, step_seconds=priced.step_seconds,
    )  # fmt: skip
    return merits.take(rows).order


def candidate(columns: Columns, row: int) -> Candidate:
    """One row of a table as a candidate, with default options."""
    values = columns.row(row)
    layout = {name: values[f"layout.{name}"] for name in PARTS["layout"]}
    return with_settings(_BLANK, layout | {name: values[f"knobs.{name}"] for name in KNOB_NAMES})
