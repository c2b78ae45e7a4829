"""Optuna study in memory: replays past trials and proposes the next; the ledger is the persistent record."""

import hashlib
import inspect
import random
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from math import isfinite
from multiprocessing import get_context
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from strategist.contract.goals import THROUGHPUT_ONLY, Goals, peak_bytes
from strategist.contract.measurement import RAN, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.frozen import frozen
from strategist.search.candidate_features import CandidateFeatures, plan_features
from strategist.search.sampler import AT_LEAST, MEMORY_RATIO, MISSES, OUT_OF_MEMORY, STEP_RATIO, SurrogateSampler
from strategist.search.settings import Settings, distance
from strategist.search.surrogate import ObservedCandidate, OtherStudies

optuna.logging.set_verbosity(optuna.logging.WARNING)

UNINFORMATIVE_OUTCOMES = (Outcome.INFRASTRUCTURE, Outcome.LOST, Outcome.CANCELLED)
"""Outcomes that say nothing about the candidate."""

MIN_OOM_VIOLATION = 0.01
"""Least constraint violation of a trial that ran out of memory, as a share of the device's memory."""

MAX_SURROGATE_TRIALS = 100
"""Maximum number of trials that the surrogate is fitted to: its work grows with their square, and further ones add little."""

Choices = dict[str, CategoricalDistribution]

OPTUNA_SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
}
"""Optuna's own samplers, by name. Their proposal need not be a candidate; the nearest candidate is tried."""

METRICS = {
    "throughput": "step_seconds", "cost": "step_seconds", "memory": "peak_memory_bytes", "energy": "joules_per_million_tokens",
}  # fmt: skip
"""Quantity that each objective minimises, as named in Optuna's tools."""


@frozen
class Tried:
    """A candidate that has a trial. The ``plan`` is priced by the current calibration; ``measurement`` is None while the trial
    runs or if it was lost.
    """

    plan: Plan
    measurement: Measurement | None = None


@frozen
class Proposal:
    """The next plan to try, and by which share it is expected to be better than the best so far; None if unknown."""

    plan: Plan
    expected_gain: float | None


def propose(
    ranked: Sequence[Plan],
    tried: Sequence[Tried],
    goals: Goals = THROUGHPUT_ONLY,
    sampler: str = "surrogate",
    seed: int = 0,
    elsewhere: Sequence[Sequence[Tried]] = (),
) -> Proposal | None:
    """The plan to try next out of ``ranked`` (best predicted first); None if all were tried. ``elsewhere`` holds trials of other
    studies, one sequence each; they train the surrogate.
    """
    tried_keys = {item.plan.candidate.key for item in tried}
    untried = [index for index, plan in enumerate(ranked) if plan.candidate.key not in tried_keys]
    if not untried:
        return None
    features, observations = observed_candidates(
        ranked, informative_trials(tried, goals) if sampler == "surrogate" else tried, goals
    )
    others = [other_study(other_trials, goals) for other_trials in elsewhere]
    index, gain = choose(features, observations, sampler, seed, untried=untried, others=others)
    return Proposal(plan=ranked[index], expected_gain=gain)


def informative_trials(tried: Sequence[Tried], goals: Goals) -> Sequence[Tried]:
    """At most ``MAX_SURROGATE_TRIALS`` trials: all that run yet, the best (up to half of the limit), then the latest."""
    if len(tried) <= MAX_SURROGATE_TRIALS:
        return tried
    values = {index: values[0] for index, item in enumerate(tried) if (values := _measured(item, goals)) is not None}
    best = sorted(values, key=lambda index: values[index])[: MAX_SURROGATE_TRIALS // 2]
    running = [index for index, item in enumerate(tried) if item.measurement is None]
    chosen = dict.fromkeys([*running, *best, *reversed(range(len(tried)))])
    return [tried[index] for index in sorted(list(chosen)[:MAX_SURROGATE_TRIALS])]


def observed_candidates(
    ranked: Sequence[Plan], tried: Sequence[Tried], goals: Goals
) -> tuple[CandidateFeatures, list[ObservedCandidate]]:
    """Features of all candidates (those of trials outside ``ranked`` last), and the observations of the trials."""
    indices = {plan.candidate.key: index for index, plan in enumerate(ranked)}
    plans = list(ranked)
    for item in tried:
        if indices.setdefault(item.plan.candidate.key, len(plans)) == len(plans):
            plans.append(item.plan)
    return plan_features(plans, goals), [_observation(indices[item.plan.candidate.key], item, goals) for item in tried]


def other_study(tried: Sequence[Tried], goals: Goals) -> OtherStudies:
    """Features and observations of another study."""
    features, observations = observed_candidates([], informative_trials(tried, goals), goals)
    return OtherStudies(features=features, observations=tuple(observations))


def choose(
    features: CandidateFeatures,
    observations: Sequence[ObservedCandidate],
    sampler: str,
    seed: int = 0,
    untried: Sequence[int] = (),
    others: Sequence[OtherStudies] = (),
) -> tuple[int, float | None]:
    """Place of the next candidate, out of ``untried`` or else of all that were not observed, and its expected gain if known."""
    untried = untried or sorted({*range(len(features))} - {item.index for item in observations})
    if sampler == "surrogate":
        choices = _varying_choices(features)
        surrogate_sampler = SurrogateSampler(features, untried, choices, others)
        study = build(features, observations, surrogate_sampler, choices)
        return surrogate_sampler.index_of(study.ask(dict[str, BaseDistribution](choices)).params), surrogate_sampler.expected_gain
    if sampler == "order":
        return next((index for index in untried if features.memory_ratio[index] <= 1), untried[0]), None
    if sampler == "grid":
        return min(untried, key=lambda index: [repr(value) for value in features.settings[index].values()]), None
    if sampler == "random":
        return random.Random(f"{seed} {len(observations)}").choice(untried), None
    suggested = (
        _in_subprocess(_suggested_settings, features, observations, sampler, seed)
        if sampler == "gp"
        else _suggested_settings(features, observations, sampler, seed)
    )
    return min(untried, key=lambda index: distance(features.settings[index], suggested)), None


def build(
    features: CandidateFeatures,
    observations: Sequence[ObservedCandidate],
    sampler: BaseSampler | None = None,
    choices: Choices | None = None,
) -> optuna.Study:
    """An Optuna study in memory that minimises all objectives, with a trial for each observation; ``choices`` are the settings
    it is over.
    """
    choices = choices_of(features) if choices is None else choices
    directions = [StudyDirection.MINIMIZE] * (1 if features.other_objectives is None else 1 + features.other_objectives.shape[1])
    study = optuna.create_study(study_name=f"strategist-{_digest(choices)}", directions=directions, sampler=sampler)
    study.add_trials([_trial(features, item, choices) for item in observations])
    return study


def choices_of(features: CandidateFeatures) -> Choices:
    """One categorical distribution per setting, over the values that occur."""
    return {name: CategoricalDistribution(values) for name, values in features.values.items()}


class _UncopiedDistribution(CategoricalDistribution):
    """A distribution that all trials share. Optuna copies and compares what each trial holds; with every value of this one, that
    would be most of its work.
    """

    def __deepcopy__(self, memo: object) -> "_UncopiedDistribution":
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = CategoricalDistribution.__hash__


def _varying_choices(features: CandidateFeatures) -> Choices:
    """Distributions of the settings that differ between candidates."""
    return {name: _UncopiedDistribution(features.values[name]) for name in features.varying_settings}


@frozen
class FinishedTrial:
    """A finished trial for an Optuna storage: what was tried, its start and end (seconds since 1970), and further attributes."""

    tried: Tried
    started: float
    ended: float
    attributes: dict[str, Any]


def save(trials: Sequence[FinishedTrial], storage: str, name: str, goals: Goals = THROUGHPUT_ONLY) -> None:
    """Writes trials into an Optuna storage as a study named ``name``, for Optuna's own tools.

    Raises:
        InputError: the storage holds a study of that name, or cannot be written.
    """
    features, observations = observed_candidates((), [item.tried for item in trials], goals)
    choices = choices_of(features)
    try:
        study = optuna.create_study(study_name=name, storage=storage, directions=[StudyDirection.MINIMIZE] * len(goals.objectives))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([METRICS[name] for name in goals.objectives])
        study.add_trials(
            [
                _with_times(_trial(features, observation, choices), item)
                for observation, item in zip(observations, trials, strict=True)
            ]
        )
    except optuna.exceptions.DuplicatedStudyError:
        raise InputError(storage, f"holds a study {name} already", "name another file") from None
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:  # Optuna wraps some of the first in the second
        raise InputError(storage, f"cannot be written: {type(error).__name__}", "name a file in a folder that is there") from None


def _with_times(trial: FrozenTrial, finished: FinishedTrial) -> FrozenTrial:
    """The Optuna trial with its times and attributes."""
    trial.datetime_start, trial.datetime_complete = map(datetime.fromtimestamp, (finished.started, finished.ended))
    trial.user_attrs = {**trial.user_attrs, **finished.attributes}
    return trial


def _measured(tried: Tried, goals: Goals) -> tuple[float, ...] | None:
    """Measured values of the objectives; None if the trial did not run."""
    if tried.measurement is None or tried.measurement.outcome not in RAN:
        return None
    return goals.measured(tried.plan, tried.measurement)


def _observation(index: int, tried: Tried, goals: Goals) -> ObservedCandidate:
    measurement = tried.measurement
    if measurement is None or measurement.outcome in UNINFORMATIVE_OUTCOMES:
        return ObservedCandidate(index=index, lost=measurement is not None)
    values, ratios = _measured(tried, goals), goals.ratios(tried.plan, measurement)
    peak = peak_bytes(measurement) or 0
    steps = [ratio for name, ratio in ratios.items() if name != "headroom" and isfinite(ratio)]
    return ObservedCandidate(
        index=index,
        value=None if values is None else values[0],
        other_objectives=() if values is None else values[1:],
        at_least=measurement.least_step_seconds if goals.of_steps else None,
        memory_ratio=peak / goals.capacity_bytes(tried.plan) if peak else None,
        step_ratio=max(steps, default=None),
        failed=values is None,
        misses=values is not None and max(ratios.values(), default=0.0) > 1,
        out_of_memory=float(measurement.outcome is Outcome.OOM),
    )


def _trial(features: CandidateFeatures, observation: ObservedCandidate, choices: Choices) -> FrozenTrial:
    """The Optuna trial of an observation. Optuna's samplers ignore failed trials, so a failure becomes a pruned trial that
    violates a constraint.
    """
    settings = features.settings[observation.index]
    common: dict[str, Any] = {"params": {name: settings[name] for name in choices}, "distributions": choices}
    if observation.value is None and not observation.failed:
        return create_trial(state=TrialState.FAIL if observation.lost else TrialState.RUNNING, **common)
    measured_attributes = {
        OUT_OF_MEMORY: observation.out_of_memory, MEMORY_RATIO: observation.memory_ratio, STEP_RATIO: observation.step_ratio,
        AT_LEAST: observation.at_least, MISSES: observation.misses or None,
    }  # fmt: skip
    attributes = {name: value for name, value in measured_attributes.items() if value is not None}
    memory_ratio = observation.memory_ratio or 0.0
    excess = (
        max(memory_ratio, float(features.memory_ratio[observation.index]), 1 + MIN_OOM_VIOLATION) - 1
        if observation.out_of_memory
        else memory_ratio - 1
    )
    constraints = {"memory": excess, "runs": 1.0 if observation.failed and not observation.out_of_memory else 0.0}
    if features.step_ratio is not None:
        constraints["step"] = (observation.step_ratio or 0.0) - 1
    state = TrialState.PRUNED if observation.failed else TrialState.COMPLETE
    values = None if observation.value is None else [observation.value, *observation.other_objectives]
    return create_trial(state=state, values=values, user_attrs=attributes, **common, **_constraints(constraints))


def _constraints(violations: dict[str, float]) -> dict[str, Any]:
    """Constraint violations as arguments of ``create_trial``: a dictionary from Optuna 5.0 on, a list before."""
    if "constraints" in inspect.signature(create_trial).parameters:
        return {"constraints": violations}
    return {"system_attrs": {"constraints": list(violations.values())}}


def _suggested_settings(
    features: CandidateFeatures, observations: Sequence[ObservedCandidate], sampler: str, seed: int
) -> Settings:
    """The settings that one of Optuna's samplers proposes."""
    distributions = _varying_choices(features)
    study = build(features, observations, OPTUNA_SAMPLERS[sampler](seed + len(observations)), distributions)
    return {**features.settings[0], **study.ask(dict(distributions)).params}


def _in_subprocess(ask: Callable[..., Settings], *arguments: Any) -> Settings:
    """Calls ``ask`` in another process, because Optuna's Gaussian process imports torch."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(ask, *arguments).result()


def _digest(choices: Choices) -> str:
    text = repr([(name, distribution.choices) for name, distribution in choices.items()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
