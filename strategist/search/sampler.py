"""The sampler: the candidate from which most is expected, by what the cost model predicts and trials have shown."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from strategist.search.belief import Others, Seen, believe, gains
from strategist.search.prospects import Prospects
from strategist.search.settings import Settings

OUT_OF_MEMORY, MEMORY_RATIO, AT_LEAST = "out_of_memory", "memory_ratio", "at_least"
"""User attributes of a trial: how sure it is that it ran out of memory, the measured share of the device's memory, and what its
value is not below, where it was ended before anybody saw it."""

NEAR_TIE = 0.02
"""Gains within this share of the greatest are equal, and the order of the prospects decides: preferences of cards are in it."""


class ByBelief(BaseSampler):
    """Proposes one of the candidates at ``untried`` places out of ``known``, in whose order the best predicted come first. Who is
    predicted not to fit comes after all others. What ``others`` have shown is believed too, and is no trial of the study."""

    def __init__(
        self,
        known: Prospects,
        untried: Sequence[int],
        distributions: Mapping[str, BaseDistribution],
        others: Sequence[Others] = (),
    ) -> None:
        self.known, self._untried, self._distributions = known, list(untried), dict(distributions)
        self._others = tuple(others)
        self.expected_gain = 0.0

    @cached_property
    def _places(self) -> Mapping[frozenset[tuple[str, Any]], int]:
        return {frozenset(own.items()): place for place, own in enumerate(self.known.settings)}

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All settings, since they are chosen together."""
        return self._distributions

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """The settings of the next candidate; ``expected_gain`` says by which share it is expected to be better than the best."""
        seen = [self._seen(other) for other in study.get_trials(deepcopy=False) if other.params and other.number != trial.number]
        best = min((item.value for item in seen if item.value is not None), default=None)
        gain = gains(believe(self.known, seen, self._others), best)
        fitting = [place for place in self._untried if self.known.memory_ratio[place] <= 1] or self._untried
        place = fitting[int(np.argmax(gain[fitting] >= (1 - NEAR_TIE) * gain[fitting].max()))]  # the first of them
        self.expected_gain = float(gain[place])
        return dict(self.known.settings[place])

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Never asked for: all settings are sampled together."""
        raise KeyError(param_name)

    def place_of(self, settings: Settings) -> int:
        """Of the candidate with these settings."""
        return self._places[frozenset(settings.items())]

    def _seen(self, trial: FrozenTrial) -> Seen:
        return Seen(
            place=self.place_of(trial.params),
            value=trial.value if trial.state is TrialState.COMPLETE else None,
            at_least=trial.user_attrs.get(AT_LEAST),
            memory_ratio=trial.user_attrs.get(MEMORY_RATIO),
            failed=trial.state is TrialState.PRUNED,
            out_of_memory=trial.user_attrs.get(OUT_OF_MEMORY, 0.0),
            lost=trial.state is TrialState.FAIL,
        )
