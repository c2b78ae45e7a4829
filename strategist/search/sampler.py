"""Sampler: proposes the candidate with the largest expected improvement, from the cost model and past trials."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from strategist.search.candidate_features import CandidateFeatures, Floats
from strategist.search.pareto_front import expected_hypervolume_gain
from strategist.search.settings import Settings
from strategist.search.surrogate import ObservedCandidate, OtherStudies, expected_improvement, fit_surrogate, predict_objectives

OUT_OF_MEMORY, MEMORY_RATIO, STEP_RATIO, AT_LEAST, MISSES = "out_of_memory", "memory_ratio", "step_ratio", "at_least", "misses"
"""Names of user attributes of a trial: probability that it ran out of memory; measured shares of the allowed memory and of the
longest step; lower bound of its value if it was pruned; whether it ran but violates a constraint.
"""

NEAR_TIE_GAIN = 0.02
"""Gains within this share of the largest count as equal; the first candidate in the order wins, which includes preferences of
cards.
"""


class SurrogateSampler(BaseSampler):
    """Proposes one of the ``untried`` places of ``known`` candidates, which are in predicted order.

    Candidates predicted not to fit come last. Trials of ``others`` (other studies) train the surrogate, but do not belong to the
    study.
    """

    def __init__(
        self,
        features: CandidateFeatures,
        untried: Sequence[int],
        distributions: Mapping[str, BaseDistribution],
        others: Sequence[OtherStudies] = (),
    ) -> None:
        self.features, self._untried, self._distributions = features, list(untried), dict(distributions)
        self._others = tuple(others)
        self.expected_gain = 0.0

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All settings: they are chosen together."""
        return self._distributions

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Settings of the next candidate; ``expected_gain`` then holds its expected improvement over the best, as a share."""
        observations = [
            self._observation(other) for other in study.get_trials(deepcopy=False) if other.params and other.number != trial.number
        ]
        gain = self._gains(observations)
        untried = np.asarray(self._untried, dtype=np.int64)
        fits = self.features.memory_ratio[untried] <= 1
        fitting = untried[fits] if fits.any() else untried
        index = int(fitting[np.argmax(gain[fitting] >= (1 - NEAR_TIE_GAIN) * gain[fitting].max())])  # the first of them
        self.expected_gain = float(gain[index])
        return dict(self.features.settings[index])

    def _gains(self, observations: Sequence[ObservedCandidate]) -> Floats:
        """Expected gain of each candidate: improvement over the best, or enlargement of the hypervolume with several objectives."""
        surrogate = fit_surrogate(self.features, observations, self._others)
        objective_values = [
            (item.value, *item.other_objectives) for item in observations if item.value is not None and not item.misses
        ]
        if self.features.other_objectives is None:
            return expected_improvement(surrogate, min((value for value, *_ in objective_values), default=None))
        mean, deviation = (
            np.stack(parts, axis=1) for parts in zip(*predict_objectives(self.features, observations, self._others), strict=True)
        )
        return expected_hypervolume_gain(
            mean, deviation, surrogate.runs, np.log(np.array(objective_values).reshape(-1, mean.shape[1]))
        )

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Not used: all settings are sampled together."""
        raise KeyError(param_name)

    def index_of(self, settings: Settings) -> int:
        """Place of the candidate with these settings; settings equal in all candidates may be absent."""
        return self.features.candidate_index[tuple(settings[name] for name in self.features.varying_settings)]

    def _observation(self, trial: FrozenTrial) -> ObservedCandidate:
        return ObservedCandidate(
            index=self.index_of(trial.params),
            value=trial.values[0] if trial.state is TrialState.COMPLETE else None,
            other_objectives=tuple(trial.values[1:]) if trial.state is TrialState.COMPLETE else (),
            at_least=trial.user_attrs.get(AT_LEAST),
            memory_ratio=trial.user_attrs.get(MEMORY_RATIO),
            step_ratio=trial.user_attrs.get(STEP_RATIO),
            failed=trial.state is TrialState.PRUNED,
            misses=trial.user_attrs.get(MISSES, False),
            out_of_memory=trial.user_attrs.get(OUT_OF_MEMORY, 0.0),
            lost=trial.state is TrialState.FAIL,
        )
