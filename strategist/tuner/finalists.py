"""Finalists: the best candidates, which run again before one of them is declared the best."""

import statistics
from collections.abc import Iterable, Sequence
from math import exp, log, sqrt
from typing import Generic, Protocol, TypeVar

from strategist.contract.goals import Goals
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import REPEAT
from strategist.frozen import frozen
from strategist.search.pareto_front import undominated
from strategist.search.study import UNINFORMATIVE_OUTCOMES
from strategist.search.tuning_result import Confirmation

REPEAT_LENGTH = 3
"""Factor on the steps of a first trial for a repeat, as a rung of successive halving (Jamieson and Talwalkar, AISTATS 2016)."""

TIE_MARGIN = 0.05
"""Finalists closer than this share may change order when they run again, however small the spread of their steps."""

MAX_ROUNDS = 4
"""Maximum number of full sets of repeats: a finalist that falls behind in its repeats is replaced by the next one."""

DEVIATIONS_IN_SPREAD = 2.56
"""Standard deviations between the 10th and the 90th percentile of a normal distribution."""

MEDIAN_ERROR = 1.25
"""Standard error of a median over that of a mean, for normal samples."""


class RankedTrial(Protocol):
    """A finished trial, in any representation of a study."""

    @property
    def number(self) -> int: ...
    @property
    def proposed_by(self) -> str: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def measurement(self) -> Measurement | None: ...


T = TypeVar("T", bound=RankedTrial)


@frozen
class Finalist(Generic[T]):
    """A candidate whose trials all ran well.

    trials: its trials, in order of their numbers.
    objective_values: values that the objectives minimise, of each repeat; of the first trial if there are no repeats. With repeats
        the first trial is left out, because the best of many first trials is biased.
    """

    trials: tuple[T, ...]
    objective_values: tuple[tuple[float, ...], ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Geometric means over the repeats, one for each objective."""
        return tuple(exp(statistics.fmean(map(log, values))) for values in zip(*self.objective_values, strict=True))

    @property
    def value(self) -> float:
        """Mean value of the request's objective."""
        return self.values[0]

    @property
    def repeats(self) -> tuple[T, ...]:
        """Its repeats, which are longer runs."""
        return tuple(trial for trial in self.trials if trial.proposed_by == REPEAT)

    @property
    def trial(self) -> T:
        """The trial that represents it: its last repeat, or its first trial."""
        return self.trials[-1]

    @property
    def error(self) -> float:
        """Relative standard error of its value, from the spread of its steps."""
        measured = self.trial.measurement
        if measured is None or not measured.step_seconds_spread or not measured.steps_measured:
            return 0.0
        return MEDIAN_ERROR * measured.step_seconds_spread / DEVIATIONS_IN_SPREAD / sqrt(measured.steps_measured)


def finalists(results: Iterable[T], goals: Goals) -> tuple[Finalist[T], ...]:
    """The finalists, best first. Candidates that failed in one of their trials or violate a constraint are left out."""
    found = [item for item in _ran_well(results, goals) if not any(_missed(trial, goals) for trial in _repeats_or_all(item.trials))]
    return tuple(sorted(found, key=lambda finalist: (finalist.value, finalist.trials[0].number)))


def front(state: Sequence[Finalist[T]], goals: Goals) -> tuple[int, ...]:
    """Numbers of the trials of undominated finalists, ascending; empty if there is only one objective."""
    if not goals.several:
        return ()
    return tuple(sorted(state[index].trial.number for index in undominated([item.values for item in state])))


def nearest(results: Iterable[T], goals: Goals) -> int | None:
    """Number of the trial with the smallest violation of its constraints; None if none ran well."""
    missed = [(max(_missed(item.trial, goals).values(), default=0.0), item.trial.number) for item in _ran_well(results, goals)]
    return min(missed)[1] if missed else None


def _ran_well(results: Iterable[T], goals: Goals) -> list[Finalist[T]]:
    by_candidate: dict[str, list[T]] = {}
    for result in sorted(results, key=lambda result: result.number):
        if result.measurement is not None and result.measurement.outcome not in UNINFORMATIVE_OUTCOMES:
            by_candidate.setdefault(result.plan.candidate.key, []).append(result)
    return [finalist for candidate_trials in by_candidate.values() if (finalist := _finalist(candidate_trials, goals)) is not None]


def _finalist(trials: Sequence[T], goals: Goals) -> Finalist[T] | None:
    if any(trial.measurement is None or trial.measurement.outcome is not Outcome.OK for trial in trials):
        return None
    measured = [(trial.plan, trial.measurement) for trial in _repeats_or_all(trials) if trial.measurement is not None]
    objective_values = [values for plan, measurement in measured if (values := goals.measured(plan, measurement)) is not None]
    return Finalist(trials=tuple(trials), objective_values=tuple(objective_values)) if objective_values else None


def _repeats_or_all(trials: Sequence[T]) -> Sequence[T]:
    """The repeats, or the first trial if there are none."""
    return [trial for trial in trials if trial.proposed_by == REPEAT] or trials


def _missed(trial: T, goals: Goals) -> dict[str, float]:
    return {} if trial.measurement is None else goals.missed(trial.plan, trial.measurement)


def next_repeat(state: Sequence[Finalist[T]], times: int, repeats_done: int) -> Finalist[T] | None:
    """The finalist to run again: of the best two, the one with fewer repeats, until both have ``times``.

    Their runs alternate, so that changes of the machine affect both. None if the best is clear, or if the ``repeats_done`` repeats
    have used up ``MAX_ROUNDS``.
    """
    if repeats_done >= MAX_ROUNDS * times or (pair := _undecided_pair(state)) is None:
        return None
    fewest = min(pair, key=lambda finalist: len(finalist.repeats))
    return fewest if len(fewest.repeats) < times else None


def confirmation(state: Sequence[Finalist[T]]) -> Confirmation | None:
    """Comparison of the best finalist with the second best; None if there is no second."""
    if len(state) < 2:
        return None
    best, second = state[:2]
    return Confirmation(
        best=best.trial.number,
        runner_up=second.trial.number,
        ahead=second.value / best.value - 1,
        in_doubt=_undecided_pair(state) is not None,
        pairs=tuple(
            second_seconds / best_seconds - 1
            for best_seconds, second_seconds in zip(_repeated(best), _repeated(second), strict=False)
        ),
    )


def _repeated(finalist: Finalist[T]) -> list[float]:
    return [values[0] for values in finalist.objective_values] if finalist.repeats else []


def _undecided_pair(state: Sequence[Finalist[T]]) -> tuple[Finalist[T], Finalist[T]] | None:
    """The best two finalists if they are too close to tell which is better; otherwise None."""
    if len(state) < 2:
        return None
    best, second = state[:2]
    doubt = max(TIE_MARGIN, 2 * sqrt(best.error**2 + second.error**2))
    return (best, second) if second.value < best.value * (1 + doubt) else None
