"""Surrogate (Gaussian process): predicts untried candidates from the trials of a study.

A Gaussian process over the logarithm of measured over predicted, so that the cost model is the mean and trials correct it
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 2.2 and 2.7). Candidates err alike where the same
parts take their time, and where their settings are near. Those of another study, of another model or on another cluster, err alike
but less, and the less the farther it is: an intrinsic coregionalisation model (Bonilla et al., Multi-task Gaussian Process
Prediction, NIPS 2007; Swersky et al., Multi-Task Bayesian Optimization, NIPS 2013), whose correlations are a kernel over what
studies are of (Krause and Ong, Contextual Gaussian Process Bandit Optimization, NIPS 2011).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from strategist.search.candidate_features import CandidateFeatures, Floats, concatenate

PART_SPREAD = 0.3
"""How far a part of the step strays from its prediction, as a logarithm."""

SETTINGS_SPREAD = 0.2
"""How far candidates stray beside, alike where their settings are."""

LENGTH = 2.5
"""Over so many doublings of a degree, or so many other settings that differ, candidates become strangers."""

NOISE = 0.05
"""How far two trials of one candidate lie apart, as a logarithm."""

MEMORY_OWN = 0.1
"""How far each candidate's memory strays from what is common to all, as a logarithm."""

MEMORY_COMMON = ((0.9, 0.1), (0.1, 0.5))
"""How far the memory of all candidates of a study strays alike: usually little, in one study of ten much; shares and spreads."""

ELSEWHERE = 0.7
"""What a trial of another study of the same model, cluster and workload tells, as a share of what one of this study would. Over
``LENGTH`` doublings of their sizes studies become strangers, as candidates do."""

STUDY_SPREAD = 1.0
"""How far all candidates of another study stray alike, as a logarithm: what is slow there as a whole says nothing here."""

ALMOST_SURE = 0.9999
"""No out-of-memory is surer than this: what would be impossible by the model stays thinkable."""

_COMMON = np.linspace(-1.5, 1.5, 301)
_RATIOS = np.linspace(-2.0, 2.0, 1601)
"""Logarithms of a share of the memory: between two the chance to fit is a straight line, to some millionths; beyond, it is sure."""


@dataclass(frozen=True, kw_only=True)
class ObservedCandidate:
    """What is known of the candidate at ``place``: what the objective and those beside it (``beside``) minimise as it was measured,
    or ``at_least`` is where the trial was ended before it showed, the measured shares of the memory and of the longest step that
    are allowed, whether it ``failed`` or ran and ``misses`` a constraint, and how sure it is that it ran out of memory. A trial
    that runs yet has none of these; one that was ``lost`` says nothing, and is not asked for again."""

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
    """What another study has shown of its own candidates, priced for its own model and cluster."""

    known: CandidateFeatures
    seen: tuple[ObservedCandidate, ...]


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """Predictions for each candidate: the logarithm of what the objective minimises, its standard deviation, and the chance that
    it runs and keeps to the constraints."""

    mean: Floats
    deviation: Floats
    runs: Floats


def fit_surrogate(known: CandidateFeatures, seen: Sequence[ObservedCandidate], others: Sequence[OtherStudies] = ()) -> Surrogate:
    """Surrogate of all candidates from the trials of this study and of others."""
    count = len(known)
    known, seen = _joined(known, seen, others)
    mean, deviation = expected(known, seen, known.predicted)
    runs = _runs(known, seen) * _in_time(known, seen)
    return Surrogate(mean=mean[:count], deviation=deviation[:count], runs=runs[:count])


def _joined(
    known: CandidateFeatures, seen: Sequence[ObservedCandidate], others: Sequence[OtherStudies]
) -> tuple[CandidateFeatures, Sequence[ObservedCandidate]]:
    """Candidates of all studies and their trials, those of this study first."""
    if not others:
        return known, seen
    whole = concatenate([known, *(other.known for other in others)])
    begins = np.cumsum(whole.sizes)[:-1]
    told = [replace(item, place=item.place + begin) for begin, other in zip(begins, others, strict=True) for item in other.seen]
    return whole, [*seen, *told]


def expected(known: CandidateFeatures, seen: Sequence[ObservedCandidate], predicted: Floats) -> tuple[Floats, Floats]:
    """Of each candidate the logarithm of what an objective minimises, by what was ``predicted`` of it and seen, and its standard
    deviation. Trials that run yet are taken to show what is expected of them, so that several tuners do not ask the same
    question."""
    prior, own = np.log(predicted), _alike(known)
    runs = [(item.place, float(np.log(item.value))) for item in seen if item.value is not None]
    by_place: dict[int, list[float]] = {}
    for place, value in runs:
        by_place.setdefault(place, []).append(value)
    values = {place: statistics.fmean(runs) for place, runs in by_place.items()}
    mean, variance = _given(known, prior, own, values)
    guessed = {item.place: float(mean[item.place]) for item in seen if item.value is None and not (item.failed or item.lost)}
    bounds = {item.place: float(np.log(item.at_least)) for item in seen if item.at_least}
    taken = values.keys() | guessed.keys()
    guessed |= {place: bound for place, bound in bounds.items() if place not in taken and mean[place] < bound}
    if guessed:
        mean, variance = _given(known, prior, own, values | guessed)
    return mean, np.sqrt(variance)


def predict_objectives(
    known: CandidateFeatures, seen: Sequence[ObservedCandidate], others: Sequence[OtherStudies] = ()
) -> list[tuple[Floats, Floats]]:
    """The same of each objective, that of the request first."""
    count = len(known)
    known, seen = _joined(known, seen, others)
    found = [expected(known, seen, known.predicted)]
    for place, predicted in enumerate(known.beside.T if known.beside is not None else ()):
        shown = [replace(item, value=item.beside[place] if item.beside else None, at_least=None) for item in seen]
        found.append(expected(known, shown, predicted))
    return [(mean[:count], deviation[:count]) for mean, deviation in found]


def expected_improvement(surrogate: Surrogate, best: float | None) -> Floats:
    """By how much each candidate is expected to be better than the ``best`` seen, as a share: expected improvement of its rate
    (Jones et al., Journal of Global Optimization 13, 1998, section 4.1) times the chance that it runs. With none seen yet the
    expected rate beside that of the best predicted."""
    rate, spread = -surrogate.mean, surrogate.deviation
    if best is None:
        rates: Floats = surrogate.runs**2 * np.exp(rate - rate.max())  # a first trial that fails teaches little
        return rates
    edge = (rate + np.log(best)) / spread
    above = np.exp(rate + np.log(best) + spread**2 / 2)
    improvement: Floats = np.maximum(surrogate.runs * (above * ndtr(edge + spread) - ndtr(edge)), 0.0)
    return improvement


def _given(known: CandidateFeatures, prior: Floats, own: Floats, values: dict[int, float]) -> tuple[Floats, Floats]:
    """Mean and variance given the logarithms seen at some places."""
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


def _alike(known: CandidateFeatures) -> Floats:
    """The variance of each candidate by itself."""
    own = PART_SPREAD**2 * (known.shares**2).sum(axis=1) + SETTINGS_SPREAD**2
    variance: Floats = own + STUDY_SPREAD**2 * (known.study > 0)
    return variance


def _covariance(known: CandidateFeatures, places: Sequence[int]) -> Floats:
    """Of all candidates with those at ``places``: candidates x places."""
    covariance = PART_SPREAD**2 * known.shares @ known.shares[places].T + SETTINGS_SPREAD**2 * _near(known, places)
    if len(known.contexts) == 1:
        return covariance
    there = (known.study[:, None] == known.study[places]) & (known.study[places] > 0)
    whole: Floats = covariance * _telling(known, places) + STUDY_SPREAD**2 * there
    return whole


def _telling(known: CandidateFeatures, places: Sequence[int]) -> Floats:
    """How much those at ``places`` tell of all candidates: less where they are of another study."""
    if len(known.contexts) == 1:
        return np.ones((1, len(places)))
    return _kin(known)[known.study[:, None], known.study[places]]


def _kin(known: CandidateFeatures) -> Floats:
    """How alike studies are: studies x studies."""
    apart = np.array([[own.squared_distance(other) for other in known.contexts] for own in known.contexts])
    alike: Floats = ELSEWHERE * np.exp(-0.5 * apart / LENGTH**2)
    np.fill_diagonal(alike, 1.0)
    return alike


def _near(known: CandidateFeatures, places: Sequence[int]) -> Floats:
    """How near the settings of all candidates are to those at ``places``: 1 where they are the same."""
    (sizes, of_sizes), (choices, of_choices) = known.sizes_alike, known.choices_alike
    apart, differing = np.zeros((len(sizes), len(places))), np.zeros((len(choices), len(places)))
    for size in sizes.T:
        apart += (size[:, None] - size[of_sizes[places]]) ** 2
    for choice in choices.T:
        differing += choice[:, None] != choice[of_choices[places]]
    near = np.exp(-0.5 * apart / LENGTH**2)[of_sizes]
    near *= np.exp(-0.5 * differing / LENGTH**2)[of_choices]
    return near


def _runs(known: CandidateFeatures, seen: Sequence[ObservedCandidate]) -> Floats:
    """The chance that a candidate fits the memory, as its prediction and all that was seen of memory tell, and that nothing else
    is wrong with it, as its neighbours tell."""
    ratio = np.log(known.memory_ratio)
    fits = np.interp(ratio, _RATIOS, ndtr((-_RATIOS[:, None] - _COMMON) / MEMORY_OWN) @ _common_memory(known, ratio, seen))
    ended = [item for item in seen if item.failed or item.value is not None]
    places = [item.place for item in ended]
    near = _near(known, places) * _telling(known, places)
    well = near @ np.array([not item.failed for item in ended], dtype=np.float64)
    chance: Floats = (fits + well) / (1 + near.sum(axis=1))
    return chance


def _in_time(known: CandidateFeatures, seen: Sequence[ObservedCandidate]) -> Floats:
    """The chance that a step takes no longer than is allowed, by a surrogate of its own."""
    if known.step_ratio is None:
        return np.ones(len(known))
    steps = [replace(item, value=item.step_ratio, at_least=None) for item in seen]
    mean, deviation = expected(known, steps, known.step_ratio)
    chance: Floats = ndtr(-mean / deviation)
    return chance


def _common_memory(known: CandidateFeatures, ratio: Floats, seen: Sequence[ObservedCandidate]) -> Floats:
    """How likely each of ``_COMMON`` is, by which the memory of all candidates of the study strays alike: as usual, or as that of
    another study did."""
    usual = np.sum([share / spread * np.exp(-0.5 * (_COMMON / spread) ** 2) for share, spread in MEMORY_COMMON], axis=0)
    usual /= usual.sum()
    own, *there = ([item for item in seen if known.study[item.place] == number] for number in range(len(known.contexts)))
    kin = zip(_kin(known)[0, 1:], there, strict=True)
    before = [alike * _likely(usual, ratio, items) + (1 - alike) * usual for alike, items in kin]
    return _likely(np.mean(before, axis=0) if before else usual, ratio, own)


def _likely(before: Floats, ratio: Floats, seen: Sequence[ObservedCandidate]) -> Floats:
    """What was thought ``before`` of ``_COMMON``, after what one study has shown."""
    likely = np.log(before)
    for item in seen:
        predicted = ratio[item.place] + _COMMON
        if item.memory_ratio:
            likely -= 0.5 * ((np.log(item.memory_ratio) - predicted) / MEMORY_OWN) ** 2
        likely += np.log1p(-min(item.out_of_memory, ALMOST_SURE) * ndtr(-predicted / MEMORY_OWN))
    weight = np.exp(likely - likely.max())
    chance: Floats = weight / weight.sum()
    return chance
