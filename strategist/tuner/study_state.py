"""Study state: immutable snapshot of a study at one moment; the only input to proposals."""

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property

from strategist.cards.deck import Deck
from strategist.contract.goals import Goals
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.study import TrialResult, TrialState
from strategist.cost.calibration import Calibration
from strategist.frozen import frozen
from strategist.ledger.rows import TrialRow
from strategist.planning.candidate_plans import completed, estimate_of
from strategist.planning.planner import ranked_outlines
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation
from strategist.search.study import Tried
from strategist.search.tuning_result import CrashCause
from strategist.tuner.crash_bisection import crash_causes, excluded
from strategist.tuner.finalists import Finalist, finalists
from strategist.tuner.warm_start import PricedWarmStart

MAX_CANDIDATES = 5000
"""Number of best predicted candidates that are considered. Ranking takes about two processor seconds per thousand."""


class Rankings:
    """Cached ranking of the space, as outlines, by the latest calibration: ranking takes seconds, and most calibrations never need
    one.

    first: the best candidate by the initial calibration; None if nothing fits.
    """

    def __init__(self, situation: Situation, deck: Deck, calibration: Calibration) -> None:
        self._situation, self._deck = situation, deck
        self._ranked_by: tuple[Calibration, tuple[str, ...]] = calibration, (situation.request.objective,)
        self.latest = ranked_outlines(situation, deck=deck, calibration=calibration, limit=MAX_CANDIDATES)
        self.first = self.latest[0] if self.latest else None

    def ranked_by(self, calibration: Calibration, objectives: tuple[str, ...]) -> tuple[Plan, ...]:
        """Outlines of the candidates, ranked by this calibration for these objectives, best predicted first."""
        if (calibration, objectives) != self._ranked_by:
            self.latest = ranked_outlines(
                self._situation, deck=self._deck, calibration=calibration, limit=MAX_CANDIDATES, objectives=objectives
            )
            self._ranked_by = calibration, objectives
        return self.latest


@frozen
class StudyState:
    """Immutable snapshot of a study.

    calibration: fitted to ``records``.
    rows: all trials, as the ledger holds them.
    results: finished trials by number.
    records: the same trials, as read from the history.
    warm_starts: other studies whose trials this study uses.
    """

    situation: Situation
    deck: Deck
    goals: Goals
    rankings: Rankings
    calibration: Calibration
    rows: tuple[TrialRow, ...] = ()
    results: Mapping[int, TrialResult] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    warm_starts: tuple[PricedWarmStart, ...] = ()

    @cached_property
    def crash_causes(self) -> tuple[CrashCause, ...]:
        """Settings that make trials crash."""
        return crash_causes(self.results.values(), self.rankings.latest)

    @cached_property
    def candidates(self) -> tuple[Plan, ...]:
        """Outlines of the space as ranked by the current calibration, without settings that crash."""
        ranked = self.rankings.ranked_by(self.calibration, self.goals.objectives)
        return tuple(plan for plan in ranked if not excluded(plan, self.crash_causes)) if self.crash_causes else ranked

    @property
    def waiting(self) -> list[TrialRow]:
        """Trials that have not finished."""
        return [row for row in self.rows if row.state is not TrialState.FINISHED]

    @cached_property
    def finalists(self) -> tuple[Finalist[TrialResult], ...]:
        """The candidates that ran well and keep to all constraints, best first."""
        return finalists(self.results.values(), self.goals)

    @property
    def best(self) -> TrialResult | None:
        """The best trial by the request's objective; None if none ran well and kept to the constraints."""
        return self.finalists[0].trial if self.finalists else None

    @cached_property
    def tried(self) -> list[Tried]:
        """Every trial, with its plan priced by the current calibration."""
        ranked_plans = {plan.candidate.key: plan for plan in self.candidates}
        plans = {row.number: self.plan_of(row) for row in self.rows}
        return [
            Tried(plan=ranked_plans.get(plan.candidate.key) or self.priced(plan), measurement=self.measurement_of(number))
            for number, plan in plans.items()
        ]

    @property
    def transferred_trials(self) -> list[tuple[Tried, ...]]:
        """The trials of each other study, priced by the current calibration where it applies to them."""
        return [warm_start.tried(self.calibration) for warm_start in self.warm_starts]

    def priced(self, plan: Plan) -> Plan:
        """The plan with the estimate of the current calibration."""
        return replace(plan, estimate=estimate_of(self.situation, plan.candidate, calibration=self.calibration))

    def completed(self, plan: Plan) -> Plan:
        """The plan of a candidate; a plan of a trial stays as it is."""
        return plan if plan.id else completed(plan, self.deck)

    def plan_of(self, row: TrialRow) -> Plan:
        """The plan of a trial."""
        result = self.results.get(row.number)
        return result.plan if result else row.plan

    def measurement_of(self, number: int) -> Measurement | None:
        """The measurement of a trial; None while it runs or if it was lost."""
        result = self.results.get(number)
        return result.measurement if result else None
