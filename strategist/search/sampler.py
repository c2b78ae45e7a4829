"""The sampler: the best predicted candidate that nobody tried, chosen among near-ties so that few trials teach much."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.search.settings import Settings, degrees, distance, predicted

MARGIN = 0.05
"""Candidates predicted within this share of the best are equally good: the cost model is no better than that."""

EXPLORE_EVERY = 4
"""Every so manieth proposal goes to degrees of parallelism that were not tried, if there are any."""

NEAR_TIES = 1000
"""So many near-ties at most are compared with what was tried."""

OOM_RATIO = "oom_predicted_memory_ratio"
"""User attribute of a trial that ran out of memory: its predicted share of the device's memory, by today's calibration."""


class BestPredicted(BaseSampler):
    """Proposes out of ``ranked``, the best predicted first; all candidates that a trial of the study holds count as tried.

    Who needs at least as much memory as a trial that ran out of it comes after all others. Raises ValueError when all were tried.
    """

    def __init__(self, ranked: Sequence[Plan], distributions: dict[str, BaseDistribution], objective: str) -> None:
        self._ranked, self._distributions, self._objective = ranked, distributions, objective

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All settings, since they are chosen together."""
        return self._distributions

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """The settings of the next candidate."""
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        tried = [other.params for other in others if other.params]
        limits = [other.user_attrs[OOM_RATIO] for other in others if OOM_RATIO in other.user_attrs]
        return settings_of(self._choose(tried, min(limits, default=None), trial.number).candidate)

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Never asked for: all settings are sampled together."""
        raise KeyError(param_name)

    def _choose(self, tried: Sequence[Settings], oom_ratio: float | None, number: int) -> Plan:
        known = {frozenset(item.items()) for item in tried}
        untried = [(plan, own) for plan in self._ranked if frozenset((own := settings_of(plan.candidate)).items()) not in known]
        if not untried:
            raise ValueError("every candidate was tried")
        safe = [item for item in untried if oom_ratio is None or memory_ratio(item[0]) < oom_ratio] or untried
        if not tried:
            return safe[0][0]
        if number % EXPLORE_EVERY == EXPLORE_EVERY - 1:
            seen = {degrees(item) for item in tried}
            if fresh := next((plan for plan, own in safe if degrees(own) not in seen), None):
                return fresh
        bound = (1 + MARGIN) * predicted(safe[0][0], self._objective)
        near = list(islice((item for item in safe if predicted(item[0], self._objective) <= bound), NEAR_TIES))
        return max(near, key=lambda item: (_preferences(item[0]), min(distance(item[1], other) for other in tried)))[0]


def memory_ratio(plan: Plan) -> float:
    """Predicted share of the device's memory."""
    return plan.estimate.peak_memory_bytes / plan.estimate.capacity_bytes


def _preferences(plan: Plan) -> int:
    """Preferences of cards that the candidate meets."""
    return sum(reason.effect == "prefer" for reason in plan.reasons)
