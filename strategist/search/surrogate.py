"""Surrogate: a Gaussian process that predicts untried candidates from the trials of a study.

It models the logarithm of measured over predicted: the cost model is the mean, and trials correct it (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, sections 2.2 and 2.7). Errors of two candidates correlate if the same parts dominate
their steps, and if their settings are close. Trials of other studies (another model or cluster) correlate less, the less the
farther their contexts are: an intrinsic coregionalisation model (Bonilla et al., Multi-task Gaussian Process Prediction, NIPS 2007;
Swersky et al., Multi-Task Bayesian Optimization, NIPS 2013), whose correlations are a kernel over contexts (Krause and Ong,
Contextual Gaussian Process Bandit Optimization, NIPS 2011).
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from strategist.frozen import frozen
from strategist.search.candidate_features import CandidateFeatures, Floats, concatenate

PART_SPREAD = 0.3
"""Standard deviation of the error of each part of the step (natural logarithm)."""

SETTINGS_SPREAD = 0.2
"""Standard deviation of the further error that depends on the settings (natural logarithm); similar settings err alike."""

LENGTH_SCALE = 2.5
"""Length scale of the kernel over settings: doublings of degrees plus the number of other settings that differ."""

NOISE = 0.05
"""Standard deviation between two trials of one candidate (natural logarithm)."""

MEMORY_SPREAD = 0.1
"""Standard deviation of a candidate's memory error beside the error common to its study (natural logarithm)."""

MEMORY_BIAS_PRIOR = ((0.9, 0.1), (0.1, 0.5))
"""Prior of the memory error common to a study, as a mixture of (weight, standard deviation of the natural logarithm): usually
small, large in one study of ten.
"""

OTHER_STUDY_CORRELATION = 0.7
"""Correlation with a trial of another study that has the same context; it decays with the distance of contexts over
``LENGTH_SCALE``.
"""

STUDY_SPREAD = 1.0
"""Standard deviation of the error common to all candidates of another study (natural logarithm): slowness of a whole study there
says nothing here.
"""

MAX_OOM_PROBABILITY = 0.9999
"""Highest weight of an observed out-of-memory, so that no candidate becomes impossible."""

_COMMON = np.linspace(-1.5, 1.5, 301)
_RATIOS = np.linspace(-2.0, 2.0, 1601)
"""Logarithms of a share of the memory: between two the chance to fit is a straight line, to some millionths; beyond, it is sure."""


@frozen
class ObservedCandidate:
    """Observations of one candidate.

    index: the candidate's position among the features.
    value: measured value of the request's objective; None if the trial failed or is running.
    other_objectives: measured values of the further objectives.
    at_least: lower bound of the value, if the trial was pruned before it was measured.
    memory_ratio, step_ratio: measured shares of the memory and of the longest step that are allowed.
    failed: the trial failed.
    misses: the trial ran, but violates a constraint.
    out_of_memory: probability that it ran out of memory.
    lost: the trial failed for reasons outside the candidate, which is not proposed again.
    """

    index: int
    value: float | None = None
    other_objectives: tuple[float, ...] = ()
    at_least: float | None = None
    memory_ratio: float | None = None
    step_ratio: float | None = None
    failed: bool = False
    misses: bool = False
    out_of_memory: float = 0.0
    lost: bool = False


@frozen
class OtherStudies:
    """Observations of another study, with the features of its candidates priced for its own model and cluster."""

    features: CandidateFeatures
    observations: tuple[ObservedCandidate, ...]


@frozen
class Surrogate:
    """Predictions for each candidate: mean and standard deviation of the logarithm of the objective, and the probability that it
    runs and keeps to the constraints.
    """

    mean: Floats
    deviation: Floats
    runs: Floats


def fit_surrogate(
    features: CandidateFeatures, observations: Sequence[ObservedCandidate], others: Sequence[OtherStudies] = ()
) -> Surrogate:
    """Surrogate of the candidates ``features``, fitted to trials of this study and of others."""
    count = len(features)
    features, observations = _joined(features, observations, others)
    mean, deviation = expected(features, observations, features.predicted)
    runs = _run_probability(features, observations) * _step_probability(features, observations)
    return Surrogate(mean=mean[:count], deviation=deviation[:count], runs=runs[:count])


def _joined(
    features: CandidateFeatures, observations: Sequence[ObservedCandidate], others: Sequence[OtherStudies]
) -> tuple[CandidateFeatures, Sequence[ObservedCandidate]]:
    """Candidates and observations of all studies; those of this study come first."""
    if not others:
        return features, observations
    joined = concatenate([features, *(other.features for other in others)])
    begins = np.cumsum(joined.sizes)[:-1]
    shifted = [
        replace(item, index=item.index + begin) for begin, other in zip(begins, others, strict=True) for item in other.observations
    ]
    return joined, [*observations, *shifted]


def expected(features: CandidateFeatures, observations: Sequence[ObservedCandidate], predicted: Floats) -> tuple[Floats, Floats]:
    """Posterior mean and standard deviation of each candidate's objective (minimised, as a logarithm), from predictions and
    observed trials. Running trials count as if they had shown their expected value, so that parallel tuners propose different
    candidates."""
    prior, prior_variance = np.log(predicted), _prior_variance(features)
    runs = [(item.index, float(np.log(item.value))) for item in observations if item.value is not None]
    values_by_candidate: dict[int, list[float]] = {}
    for index, value in runs:
        values_by_candidate.setdefault(index, []).append(value)
    values = {index: statistics.fmean(runs) for index, runs in values_by_candidate.items()}
    mean, variance = _posterior(features, prior, prior_variance, values)
    imputed = {
        item.index: float(mean[item.index]) for item in observations if item.value is None and not (item.failed or item.lost)
    }
    bounds = {item.index: float(np.log(item.at_least)) for item in observations if item.at_least}
    with_values = values.keys() | imputed.keys()
    imputed |= {index: bound for index, bound in bounds.items() if index not in with_values and mean[index] < bound}
    if imputed:
        mean, variance = _posterior(features, prior, prior_variance, values | imputed)
    return mean, np.sqrt(variance)


def predict_objectives(
    features: CandidateFeatures, observations: Sequence[ObservedCandidate], others: Sequence[OtherStudies] = ()
) -> list[tuple[Floats, Floats]]:
    """Mean and standard deviation of the logarithm of each objective, the request's first."""
    count = len(features)
    features, observations = _joined(features, observations, others)
    found = [expected(features, observations, features.predicted)]
    for objective, predicted in enumerate(features.other_objectives.T if features.other_objectives is not None else ()):
        objective_observations = [
            replace(item, value=item.other_objectives[objective] if item.other_objectives else None, at_least=None)
            for item in observations
        ]
        found.append(expected(features, objective_observations, predicted))
    return [(mean[:count], deviation[:count]) for mean, deviation in found]


def expected_improvement(surrogate: Surrogate, best: float | None) -> Floats:
    """Expected improvement of each candidate's rate over the ``best``, as a share (Jones et al., Journal of Global Optimization 13,
    1998, section 4.1), times the probability that it runs.

    Before any trial: the expected rate relative to the best predicted, times the probability that it runs, squared.
    """
    rate, spread = -surrogate.mean, surrogate.deviation
    if best is None:
        rates: Floats = surrogate.runs**2 * np.exp(rate - rate.max())  # a first trial that fails teaches little
        return rates
    edge = (rate + np.log(best)) / spread
    above = np.exp(rate + np.log(best) + spread**2 / 2)
    improvement: Floats = np.maximum(surrogate.runs * (above * ndtr(edge + spread) - ndtr(edge)), 0.0)
    return improvement


def _posterior(
    features: CandidateFeatures, prior: Floats, prior_variance: Floats, values: dict[int, float]
) -> tuple[Floats, Floats]:
    """Posterior mean and variance, given logarithms of ``values`` at some candidates."""
    indices = list(values)
    if not indices:
        return prior, prior_variance
    covariance = _covariance(features, indices)
    observed_covariance = covariance[indices] + NOISE**2 * np.eye(len(indices))
    residuals = np.array([values[index] - prior[index] for index in indices])
    whitening = np.linalg.inv(np.linalg.cholesky(observed_covariance))
    gain = covariance @ whitening.T
    variance = prior_variance - np.einsum("cp,cp->c", gain, gain)
    return prior + gain @ (whitening @ residuals), np.maximum(variance, 1e-9)


def _prior_variance(features: CandidateFeatures) -> Floats:
    """Prior variance of each of the candidates at ``places``."""
    within_study = PART_SPREAD**2 * (features.shares**2).sum(axis=1) + SETTINGS_SPREAD**2
    variance: Floats = within_study + STUDY_SPREAD**2 * (features.study > 0)
    return variance


def _covariance(features: CandidateFeatures, indices: Sequence[int]) -> Floats:
    """Prior covariance of all candidates with those at ``indices``: candidates x len(indices)."""
    covariance = PART_SPREAD**2 * features.shares @ features.shares[indices].T + SETTINGS_SPREAD**2 * _settings_kernel(
        features, indices
    )
    if len(features.contexts) == 1:
        return covariance
    same_study = (features.study[:, None] == features.study[indices]) & (features.study[indices] > 0)
    with_study: Floats = covariance * _study_correlation(features, indices) + STUDY_SPREAD**2 * same_study
    return with_study


def _study_correlation(features: CandidateFeatures, indices: Sequence[int]) -> Floats:
    """Correlation between the studies of all candidates and those at ``indices``: candidates x len(indices)."""
    if len(features.contexts) == 1:
        return np.ones((1, len(indices)))
    return _correlation_of_studies(features)[features.study[:, None], features.study[indices]]


def _correlation_of_studies(features: CandidateFeatures) -> Floats:
    """Correlation between studies: studies x studies."""
    squared_distances = np.array(
        [[context.squared_distance(other) for other in features.contexts] for context in features.contexts]
    )
    correlation: Floats = OTHER_STUDY_CORRELATION * np.exp(-0.5 * squared_distances / LENGTH_SCALE**2)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _settings_kernel(features: CandidateFeatures, indices: Sequence[int]) -> Floats:
    """Kernel between the settings of all candidates and those at ``indices``: candidates x len(indices); 1 for equal settings."""
    (sizes, size_index), (choices, choice_index) = features.distinct_sizes, features.distinct_choices
    squared_distances, differing_count = np.zeros((len(sizes), len(indices))), np.zeros((len(choices), len(indices)))
    for size in sizes.T:
        squared_distances += (size[:, None] - size[size_index[indices]]) ** 2
    for choice in choices.T:
        differing_count += choice[:, None] != choice[choice_index[indices]]
    kernel = np.exp(-0.5 * squared_distances / LENGTH_SCALE**2)[size_index]
    kernel *= np.exp(-0.5 * differing_count / LENGTH_SCALE**2)[choice_index]
    return kernel


def _run_probability(features: CandidateFeatures, observations: Sequence[ObservedCandidate]) -> Floats:
    """Probability that each candidate fits the memory, by prediction and observed memory, and does not fail otherwise, by its
    neighbours.
    """
    ratio = np.log(features.memory_ratio)
    fits = np.interp(
        ratio, _RATIOS, ndtr((-_RATIOS[:, None] - _COMMON) / MEMORY_SPREAD) @ _memory_error_posterior(features, ratio, observations)
    )
    ended = [item for item in observations if item.failed or item.value is not None]
    indices = [item.index for item in ended]
    weights = _settings_kernel(features, indices) * _study_correlation(features, indices)
    successes = weights @ np.array([not item.failed for item in ended], dtype=np.float64)
    chance: Floats = (fits + successes) / (1 + weights.sum(axis=1))
    return chance


def _step_probability(features: CandidateFeatures, observations: Sequence[ObservedCandidate]) -> Floats:
    """Probability that each candidate's step is no longer than allowed, by a surrogate of the step."""
    if features.step_ratio is None:
        return np.ones(len(features))
    steps = [replace(item, value=item.step_ratio, at_least=None) for item in observations]
    mean, deviation = expected(features, steps, features.step_ratio)
    chance: Floats = ndtr(-mean / deviation)
    return chance


def _memory_error_posterior(features: CandidateFeatures, ratio: Floats, observations: Sequence[ObservedCandidate]) -> Floats:
    """Posterior probability of each value of ``_COMMON``, the memory error common to this study; posteriors of other studies
    enter the prior.
    """
    prior = np.sum([share / spread * np.exp(-0.5 * (_COMMON / spread) ** 2) for share, spread in MEMORY_BIAS_PRIOR], axis=0)
    prior /= prior.sum()
    own_observations, *other_observations = (
        [item for item in observations if features.study[item.index] == number] for number in range(len(features.contexts))
    )
    other_studies = zip(_correlation_of_studies(features)[0, 1:], other_observations, strict=True)
    updated_priors = [
        correlation * _updated_prior(prior, ratio, items) + (1 - correlation) * prior for correlation, items in other_studies
    ]
    return _updated_prior(np.mean(updated_priors, axis=0) if updated_priors else prior, ratio, own_observations)


def _updated_prior(prior: Floats, ratio: Floats, observations: Sequence[ObservedCandidate]) -> Floats:
    """Posterior of ``_COMMON``, given the prior ``prior`` and the observations of one study."""
    log_likelihood = np.log(prior)
    for item in observations:
        predicted = ratio[item.index] + _COMMON
        if item.memory_ratio:
            log_likelihood -= 0.5 * ((np.log(item.memory_ratio) - predicted) / MEMORY_SPREAD) ** 2
        log_likelihood += np.log1p(-min(item.out_of_memory, MAX_OOM_PROBABILITY) * ndtr(-predicted / MEMORY_SPREAD))
    weight = np.exp(log_likelihood - log_likelihood.max())
    chance: Floats = weight / weight.sum()
    return chance
