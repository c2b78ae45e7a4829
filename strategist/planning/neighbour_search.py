"""Neighbour search: the best plan with another value of one setting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from strategist.cards.deck import Deck
from strategist.contract.explanation import Nearest
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_CHOICES, full_name
from strategist.cost.calibration import Calibration
from strategist.errors import InputError
from strategist.planning.candidate_plans import resolved_outlines
from strategist.planning.planner import best_of, resolve_candidate
from strategist.planning.ranking import PlanningContext, blocking_laws, ranking_of
from strategist.profiles.situation import Situation
from strategist.search.rank import Ranking, candidate


@dataclass(kw_only=True)
class Neighbours:
    """Search results of a situation, and of the same situation with one more fixed setting; each search runs when it is first
    needed.
    """

    situation: Situation
    deck: Deck
    calibration: Calibration | None = None
    _ranking: Ranking | None = None

    def best_with(self, name: str, value: KnobValue) -> Candidate | None:
        """The best searched candidate with the value; None if none is allowed and fits."""
        if self._ranking is None:
            self._ranking = ranking_of(self.situation, self._new_context())
        ranking, full = self._ranking, full_name(name)
        column = ranking.columns.values[full][ranking.order]
        code = SETTING_CHOICES[name].index(value) if full in ranking.columns.categories else value
        rows = np.flatnonzero(column == code)
        return candidate(ranking.columns, int(ranking.order[rows[0]])) if len(rows) else None

    def resolve(self, candidates: Sequence[Candidate]) -> list[Plan]:
        """Searched candidates with their options resolved by the cards, as plans without reasons, back ends and ids."""
        return resolved_outlines(self.situation, candidates, self._new_context())

    def nearest_with(self, name: str, value: KnobValue) -> Nearest:
        """The best plan with the value fixed in addition to what is fixed already."""
        request = self.situation.request
        fixed_situation = replace(self.situation, request=replace(request, fix={**request.fix, name: value}))
        context = self._new_context()
        try:
            ranking = ranking_of(fixed_situation, context)
            if len(ranking.order):
                return Nearest(plan=best_of(fixed_situation, ranking, context))
            if ranking.columns.rows:
                nearest_candidate = candidate(ranking.columns, _nearest_to_fit(ranking))
                return Nearest(
                    plan=resolve_candidate(fixed_situation, nearest_candidate, deck=self.deck, calibration=self.calibration)
                )
        except InputError as error:
            return Nearest(law=error.law)
        drops = blocking_laws(fixed_situation, ranking, context)
        cards = tuple(drop.card for drop in drops)
        return Nearest(cards=cards, policy=drops[0].policy, because=drops[0].because) if drops else Nearest(law="cards leave none")

    def _new_context(self) -> PlanningContext:
        """A context that keeps no spaces of earlier searches, which may be large."""
        return PlanningContext(deck=self.deck, calibration=self.calibration)


def _nearest_to_fit(ranking: Ranking) -> int:
    """The allowed candidate nearest to fitting: by device memory or, if some fit the devices, by host memory."""
    priced = ranking.priced
    on_devices = np.flatnonzero(priced.peak_memory_bytes <= priced.capacity_bytes)
    if len(on_devices) == 0 or not ranking.host_too_small:
        return int(np.argmin(priced.peak_memory_bytes))
    return int(on_devices[np.argmin(priced.host_memory_bytes_per_node[on_devices])])
