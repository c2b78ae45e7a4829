"""Study state: immutable snapshot of a study at one moment; the only input to proposals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from strategist.cards.deck import Deck
from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.study import TrialState
from strategist.cost.calibration import Calibration
from strategist.ledger.rows import TrialRow
from strategist.planning.planner import price_candidate, ranked
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation
from strategist.search.study import Tried
from strategist.search.tuning_result import CrashCause, TrialResult
from strategist.tuner.crash_bisection import crash_causes, excluded
from strategist.tuner.finalists import Finalist, finalists
from strategist.tuner.warm_start import PricedWarmStart

CANDIDATES = 5000
"""So many of the best predicted candidates are considered, which takes some seconds a thousand: three, or eight of pipelines."""


class Rankings:
    """The space as the latest calibration ranks it: ranking takes seconds, and many calibrations are never asked for one. ``first``
    is what the calibration that it began with put first; None where nothing fits."""

    def __init__(self, asked: Situation, deck: Deck, calibration: Calibration) -> None:
        self._asked, self._deck = asked, deck
        self._by: tuple[Calibration, tuple[str, ...]] = calibration, (asked.request.objective,)
        self.latest = ranked(asked, deck=deck, calibration=calibration, limit=CANDIDATES)
        self.first = self.latest[0] if self.latest else None

    def by(self, calibration: Calibration, objectives: tuple[str, ...]) -> tuple[Plan, ...]:
        """The candidates, best predicted first."""
        if (calibration, objectives) != self._by:
            self.latest = ranked(self._asked, deck=self._deck, calibration=calibration, limit=CANDIDATES, objectives=objectives)
            self._by = calibration, objectives
        return self.latest


@dataclass(frozen=True, kw_only=True)
class StudyState:
    """A study's trials as its ledger holds them, ``results`` of the finished ones by number, the same as ``records`` of its
    history, and the ``calibration`` that they taught; ``others`` are the studies that warm this one."""

    asked: Situation
    deck: Deck
    goals: Goals
    rankings: Rankings
    calibration: Calibration
    rows: tuple[TrialRow, ...] = ()
    results: Mapping[int, TrialResult] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    others: tuple[PricedWarmStart, ...] = ()

    @cached_property
    def crash_causes(self) -> tuple[CrashCause, ...]:
        """Settings that crash."""
        return crash_causes(self.results.values(), self.rankings.latest)

    @cached_property
    def candidates(self) -> tuple[Plan, ...]:
        """The space as today's calibration ranks it, without settings that crash."""
        ranked = self.rankings.by(self.calibration, self.goals.objectives)
        return tuple(plan for plan in ranked if not excluded(plan, self.crash_causes)) if self.crash_causes else ranked

    @property
    def waiting(self) -> list[TrialRow]:
        """Trials that have not ended."""
        return [row for row in self.rows if row.state is not TrialState.FINISHED]

    @cached_property
    def finalists(self) -> tuple[Finalist[TrialResult], ...]:
        """The candidates that ran well and keep to the constraints, best first."""
        return finalists(self.results.values(), self.goals)

    @property
    def best(self) -> TrialResult | None:
        """The trial that the objective ranks first."""
        return self.finalists[0].trial if self.finalists else None

    @cached_property
    def tried(self) -> list[Tried]:
        """Every trial, its plan priced by today's calibration."""
        known = {plan.candidate.key: plan for plan in self.candidates}
        plans = {row.number: self.plan_of(row) for row in self.rows}
        return [
            Tried(plan=known.get(plan.candidate.key) or self.priced(plan), measurement=self.measurement_of(number))
            for number, plan in plans.items()
        ]

    @property
    def transferred_trials(self) -> list[tuple[Tried, ...]]:
        """The trials of the studies that warm this one, priced by today's calibration where it holds there too."""
        return [other.tried(self.calibration) for other in self.others]

    def priced(self, plan: Plan) -> Plan:
        """The plan by today's calibration."""
        return price_candidate(self.asked, plan.candidate, deck=self.deck, calibration=self.calibration)

    def plan_of(self, row: TrialRow) -> Plan:
        """The plan that the trial runs."""
        known = self.results.get(row.number)
        return known.plan if known else codec.loads(Plan, row.plan_json)

    def measurement_of(self, number: int) -> Measurement | None:
        """What the trial showed; None while it runs, and where it was lost."""
        known = self.results.get(number)
        return known.measurement if known else None
