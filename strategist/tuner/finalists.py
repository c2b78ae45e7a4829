"""Finalists: the best candidates, and which of them to repeat before one is declared the best."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Generic, Protocol, TypeVar

from strategist.contract.goals import Goals
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import REPEAT
from strategist.search.pareto_front import undominated
from strategist.search.study import SILENT
from strategist.search.tuning_result import Confirmation

REPEAT_LENGTH = 3
"""A repeat has so many times the steps of a first look, as a rung of successive halving (Jamieson and Talwalkar, AISTATS 2016)."""

TIE = 0.05
"""Contenders nearer to each other than this may change places when they run again, however steady their steps were."""

ROUNDS = 4
"""A finalist that falls behind in its repeats is replaced by the next, up to this number of full sets of repeats."""

DEVIATIONS_IN_SPREAD = 2.56
"""From the 10th to the 90th percentile of a normal distribution."""

MEDIAN_ERROR = 1.25
"""The standard error of a median beside that of a mean, of normal samples."""


class RankedTrial(Protocol):
    """A finished trial, by any view on a study."""

    @property
    def number(self) -> int: ...
    @property
    def proposed_by(self) -> str: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def measurement(self) -> Measurement | None: ...


T = TypeVar("T", bound=RankedTrial)


@dataclass(frozen=True, kw_only=True)
class Finalist(Generic[T]):
    """A candidate all of whose ``trials`` ran well, in the order of their numbers; ``seen`` is what the objectives minimise, of
    each of its repeats where it has any: a first look that seems good is good or lucky."""

    trials: tuple[T, ...]
    seen: tuple[tuple[float, ...], ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Their means, one of each objective."""
        return tuple(exp(statistics.fmean(map(log, values))) for values in zip(*self.seen, strict=True))

    @property
    def value(self) -> float:
        """That of the request's objective."""
        return self.values[0]

    @property
    def repeats(self) -> tuple[T, ...]:
        """Its longer runs."""
        return tuple(trial for trial in self.trials if trial.proposed_by == REPEAT)

    @property
    def trial(self) -> T:
        """The one that speaks for it: its last repeat, or its first look."""
        return self.trials[-1]

    @property
    def error(self) -> float:
        """The standard error of its value, as a share, by how its steps differ."""
        measured = self.trial.measurement
        if measured is None or not measured.step_seconds_spread or not measured.steps_measured:
            return 0.0
        return MEDIAN_ERROR * measured.step_seconds_spread / DEVIATIONS_IN_SPREAD / sqrt(measured.steps_measured)


def finalists(results: Iterable[T], goals: Goals) -> tuple[Finalist[T], ...]:
    """Best first; a candidate that failed in one of its trials is none, nor one that misses a constraint."""
    found = [item for item in _ran_well(results, goals) if not any(_missed(trial, goals) for trial in _counted(item.trials))]
    return tuple(sorted(found, key=lambda finalist: (finalist.value, finalist.trials[0].number)))


def front(state: Sequence[Finalist[T]], goals: Goals) -> tuple[int, ...]:
    """The trials of those that no other dominates, by number; none where there is one objective."""
    if not goals.several:
        return ()
    return tuple(sorted(state[place].trial.number for place in undominated([item.values for item in state])))


def nearest(results: Iterable[T], goals: Goals) -> int | None:
    """The trial that misses its constraints by least, by number; None where none ran well."""
    missed = [(max(_missed(item.trial, goals).values(), default=0.0), item.trial.number) for item in _ran_well(results, goals)]
    return min(missed)[1] if missed else None


def _ran_well(results: Iterable[T], goals: Goals) -> list[Finalist[T]]:
    by_candidate: dict[str, list[T]] = {}
    for result in sorted(results, key=lambda result: result.number):
        if result.measurement is not None and result.measurement.outcome not in SILENT:
            by_candidate.setdefault(result.plan.candidate.key, []).append(result)
    return [finalist for own in by_candidate.values() if (finalist := _finalist(own, goals)) is not None]


def _finalist(trials: Sequence[T], goals: Goals) -> Finalist[T] | None:
    if any(trial.measurement is None or trial.measurement.outcome is not Outcome.OK for trial in trials):
        return None
    measured = [(trial.plan, trial.measurement) for trial in _counted(trials) if trial.measurement is not None]
    seen = [values for plan, measurement in measured if (values := goals.measured(plan, measurement)) is not None]
    return Finalist(trials=tuple(trials), seen=tuple(seen)) if seen else None


def _counted(trials: Sequence[T]) -> Sequence[T]:
    """The repeats, or the first look where there are none."""
    return [trial for trial in trials if trial.proposed_by == REPEAT] or trials


def _missed(trial: T, goals: Goals) -> dict[str, float]:
    return {} if trial.measurement is None else goals.missed(trial.plan, trial.measurement)


def next_repeat(state: Sequence[Finalist[T]], times: int, held: int) -> Finalist[T] | None:
    """The finalist to run again: of the best two, the one with fewer repeats, the best first, until both have ``times``. Their runs
    take turns, and whatever else changes on the machine meets both. None where the best is beyond doubt, or where so many repeats
    were ``held`` that it cannot be had for its price."""
    if held >= ROUNDS * times or (pair := _in_doubt(state)) is None:
        return None
    fewest = min(pair, key=lambda finalist: len(finalist.repeats))
    return fewest if len(fewest.repeats) < times else None


def confirmation(state: Sequence[Finalist[T]]) -> Confirmation | None:
    """How the best stands beside the runner-up; None where no other ran well."""
    if len(state) < 2:
        return None
    best, second = state[:2]
    return Confirmation(
        best=best.trial.number,
        runner_up=second.trial.number,
        ahead=second.value / best.value - 1,
        in_doubt=_in_doubt(state) is not None,
        pairs=tuple(theirs / own - 1 for own, theirs in zip(_repeated(best), _repeated(second), strict=False)),
    )


def _repeated(finalist: Finalist[T]) -> list[float]:
    return [values[0] for values in finalist.seen] if finalist.repeats else []


def _in_doubt(state: Sequence[Finalist[T]]) -> tuple[Finalist[T], Finalist[T]] | None:
    """The best and the next one, where they are too near for one look."""
    if len(state) < 2:
        return None
    best, second = state[:2]
    doubt = max(TIE, 2 * sqrt(best.error**2 + second.error**2))
    return (best, second) if second.value < best.value * (1 + doubt) else None
