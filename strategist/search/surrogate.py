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
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

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


@dataclass(frozen=True, kw_only=True)
class ObservedCandidate:
    """Observations of the candidate at ``place``.

    value: measured value of the request's objective; None if the trial failed or runs yet.
    beside: measured values of the further objectives.
    at_least: lower bound of the value, if the trial was pruned before it was measured.
    memory_ratio, step_ratio: measured shares of the memory and of the longest step that are allowed.
    failed: the trial failed.
    misses: the trial ran, but violates a constraint.
    out_of_memory: probability that it ran out of memory.
    lost: the trial says nothing of the candidate, which is not proposed again.
    """

    place: int
    value: float | None = None
    beside: tuple[float, ...] = ()
    at_least: float | None = None
    memory_ratio: float | None = None
    step_ratio: float | None = None
    failed: bool = False
    misses: bool = False
    out_of_memory: float = 0.0
    lost: bool = False


@dataclass(frozen=True, kw_only=True)
class OtherStudies:
    """Observations of another study, with the features of its candidates priced for its own model and cluster."""

    known: CandidateFeatures
    seen: tuple[ObservedCandidate, ...]


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """Predictions for each candidate: mean and standard deviation of the logarithm of the objective, and the probability that it
    runs and keeps to the constraints.
    """

    mean: Floats
    deviation: Floats
    runs: Floats


def fit_surrogate(known: CandidateFeatures, seen: Sequence[ObservedCandidate], others: Sequence[OtherStudies] = ()) -> Surrogate:
    """Surrogate of the candidates ``known``, fitted to trials of this study and of others."""
    count = len(known)
    known, seen = _joined(known, seen, others)
    mean, deviation = expected(known, seen, known.predicted)
    runs = _run_probability(known, seen) * _step_probability(known, seen)
    return Surrogate(mean=mean[:count], deviation=deviation[:count], runs=runs[:count])


def _joined(
    known: CandidateFeatures, seen: Sequence[ObservedCandidate], others: Sequence[OtherStudies]
) -> tuple[CandidateFeatures, Sequence[ObservedCandidate]]:
    """Candidates and observations of all studies; those of this study come first."""
    if not others:
        return known, seen
    whole = concatenate([known, *(other.known for other in others)])
    begins = np.cumsum(whole.sizes)[:-1]
    told = [replace(item, place=item.place + begin) for begin, other in zip(begins, others, strict=True) for item in other.seen]
    return whole, [*seen, *told]


def expected(known: CandidateFeatures, seen: Sequence[ObservedCandidate], predicted: Floats) -> tuple[Floats, Floats]:
    """Posterior mean and standard deviation of each candidate's objective (minimised, as a logarithm), from predictions and
    observed trials. Running trials count as if they had shown their expected value, so that parallel tuners propose different
    candidates."""
    prior, own = np.log(predicted), _prior_variance(known)
    runs = [(item.place, float(np.log(item.value))) for item in seen if item.value is not None]
    by_place: dict[int, list[float]] = {}
    for place, value in runs:
        by_place.setdefault(place, []).append(value)
    values = {place: statistics.fmean(runs) for place, runs in by_place.items()}
    mean, variance = _posterior(known, prior, own, values)
    guessed = {item.place: float(mean[item.place]) for item in seen if item.value is None and not (item.failed or item.lost)}
    bounds = {item.place: float(np.log(item.at_least)) for item in seen if item.at_least}
    taken = values.keys() | guessed.keys()
    guessed |= {place: bound for place, bound in bounds.items() if place not in taken and mean[place] < bound}
    if guessed:
        mean, variance = _posterior(known, prior, own, values | guessed)
    return mean, np.sqrt(variance)


def predict_objectives(
    known: CandidateFeatures, seen: Sequence[ObservedCandidate], others: Sequence[OtherStudies] = ()
) -> list[tuple[Floats, Floats]]:
    """Mean and standard deviation of the logarithm of each objective, the request's first."""
    count = len(known)
    known, seen = _joined(known, seen, others)
    found = [expected(known, seen, known.predicted)]
    for place, predicted in enumerate(known.beside.T if known.beside is not None else ()):
        shown = [replace(item, value=item.beside[place] if item.beside else None, at_least=None) for item in seen]
        found.append(expected(known, shown, predicted))
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


def _posterior(known: CandidateFeatures, prior: Floats, own: Floats, values: dict[int, float]) -> tuple[Floats, Floats]:
    """Posterior mean and variance, given logarithms of ``values`` at some candidates."""
    places = list(values)
    if not places:
        return prior, own
    beside = _covariance(known, places)
    among = beside[places] + NOISE**2 * np.eye(len(places))
    left = np.array([values[place] - prior[place] for place in places])
    whitening = np.linalg.inv(np.linalg.cholesky(among))
    known_of = beside @ whitening.T
    variance = own - np.einsum("cp,cp->c", known_of, known_of)
    return prior + known_of @ (whitening @ left), np.maximum(variance, 1e-9)


def _prior_variance(known: CandidateFeatures) -> Floats:
    """Prior variance of each of the candidates at ``places``."""
    own = PART_SPREAD**2 * (known.shares**2).sum(axis=1) + SETTINGS_SPREAD**2
    variance: Floats = own + STUDY_SPREAD**2 * (known.study > 0)
    return variance


def _covariance(known: CandidateFeatures, places: Sequence[int]) -> Floats:
    """Prior covariance of all candidates with those at ``places``: candidates x places."""
    covariance = PART_SPREAD**2 * known.shares @ known.shares[places].T + SETTINGS_SPREAD**2 * _settings_kernel(known, places)
    if len(known.contexts) == 1:
        return covariance
    there = (known.study[:, None] == known.study[places]) & (known.study[places] > 0)
    whole: Floats = covariance * _study_correlation(known, places) + STUDY_SPREAD**2 * there
    return whole


def _study_correlation(known: CandidateFeatures, places: Sequence[int]) -> Floats:
    """Correlation between the studies of all candidates and those at ``places``: candidates x places."""
    if len(known.contexts) == 1:
        return np.ones((1, len(places)))
    return _correlation_of_studies(known)[known.study[:, None], known.study[places]]


def _correlation_of_studies(known: CandidateFeatures) -> Floats:
    """Correlation between studies: studies x studies."""
    apart = np.array([[own.squared_distance(other) for other in known.contexts] for own in known.contexts])
    alike: Floats = OTHER_STUDY_CORRELATION * np.exp(-0.5 * apart / LENGTH_SCALE**2)
    np.fill_diagonal(alike, 1.0)
    return alike


def _settings_kernel(known: CandidateFeatures, places: Sequence[int]) -> Floats:
    """Kernel between the settings of all candidates and those at ``places``: candidates x places; 1 for equal settings."""
    (sizes, of_sizes), (choices, of_choices) = known.sizes_alike, known.choices_alike
    apart, differing = np.zeros((len(sizes), len(places))), np.zeros((len(choices), len(places)))
    for size in sizes.T:
        apart += (size[:, None] - size[of_sizes[places]]) ** 2
    for choice in choices.T:
        differing += choice[:, None] != choice[of_choices[places]]
    near = np.exp(-0.5 * apart / LENGTH_SCALE**2)[of_sizes]
    near *= np.exp(-0.5 * differing / LENGTH_SCALE**2)[of_choices]
    return near


def _run_probability(known: CandidateFeatures, seen: Sequence[ObservedCandidate]) -> Floats:
    """Probability that each candidate fits the memory, by prediction and observed memory, and does not fail otherwise, by its
    neighbours.
    """
    ratio = np.log(known.memory_ratio)
    fits = np.interp(
        ratio, _RATIOS, ndtr((-_RATIOS[:, None] - _COMMON) / MEMORY_SPREAD) @ _memory_error_posterior(known, ratio, seen)
    )
    ended = [item for item in seen if item.failed or item.value is not None]
    places = [item.place for item in ended]
    near = _settings_kernel(known, places) * _study_correlation(known, places)
    well = near @ np.array([not item.failed for item in ended], dtype=np.float64)
    chance: Floats = (fits + well) / (1 + near.sum(axis=1))
    return chance


def _step_probability(known: CandidateFeatures, seen: Sequence[ObservedCandidate]) -> Floats:
    """Probability that each candidate's step is no longer than allowed, by a surrogate of the step."""
    if known.step_ratio is None:
        return np.ones(len(known))
    steps = [replace(item, value=item.step_ratio, at_least=None) for item in seen]
    mean, deviation = expected(known, steps, known.step_ratio)
    chance: Floats = ndtr(-mean / deviation)
    return chance


def _memory_error_posterior(known: CandidateFeatures, ratio: Floats, seen: Sequence[ObservedCandidate]) -> Floats:
    """Posterior probability of each value of ``_COMMON``, the memory error common to this study; posteriors of other studies
    enter the prior.
    """
    usual = np.sum([share / spread * np.exp(-0.5 * (_COMMON / spread) ** 2) for share, spread in MEMORY_BIAS_PRIOR], axis=0)
    usual /= usual.sum()
    own, *there = ([item for item in seen if known.study[item.place] == number] for number in range(len(known.contexts)))
    kin = zip(_correlation_of_studies(known)[0, 1:], there, strict=True)
    before = [alike * _updated_prior(usual, ratio, items) + (1 - alike) * usual for alike, items in kin]
    return _updated_prior(np.mean(before, axis=0) if before else usual, ratio, own)


def _updated_prior(before: Floats, ratio: Floats, seen: Sequence[ObservedCandidate]) -> Floats:
    """Posterior of ``_COMMON``, given the prior ``before`` and the observations of one study."""
    likely = np.log(before)
    for item in seen:
        predicted = ratio[item.place] + _COMMON
        if item.memory_ratio:
            likely -= 0.5 * ((np.log(item.memory_ratio) - predicted) / MEMORY_SPREAD) ** 2
        likely += np.log1p(-min(item.out_of_memory, MAX_OOM_PROBABILITY) * ndtr(-predicted / MEMORY_SPREAD))
    weight = np.exp(likely - likely.max())
    chance: Floats = weight / weight.sum()
    return chance
