"""Replay benchmark: searches published sweeps again, with published rows as trials, and counts the trials until one is near the
best.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import isfinite
from multiprocessing import get_context

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.sweep import MIN_ROWS, Sweep, common_without, priced_without, sweeps_by_name
from strategist.contract.replay import CLOSE, START_SECONDS, STEPS, ReplayDocument, ReplayedSweep, SearchRun, Summary
from strategist.contract.settings import settings_of
from strategist.cost.calibration import Calibration
from strategist.errors import InputError
from strategist.search.candidate_features import CandidateFeatures, context
from strategist.search.study import choose
from strategist.search.surrogate import ObservedCandidate, OtherStudies

OOM_PROBABILITY = 0.95
"""Probability that a published failure was out of memory: sources count other crashes as such."""

DETERMINISTIC_SAMPLERS = ("surrogate", "order", "grid")
"""Deterministic samplers: the seed changes nothing."""


OnSweep = Callable[[str, int, int], None]


def replay(
    cases: Sequence[Case],
    samplers: Sequence[str],
    seeds: int,
    *,
    among: Sequence[Case] | None = None,
    processes: int = 1,
    on_sweep: OnSweep | None = None,
) -> ReplayDocument:
    """Searches every sweep among ``among`` (default: all ``cases``) with every sampler; random samplers with each of ``seeds``
    seeds.

    Factors are fitted to ``cases`` without the rows of the searched sweep.

    Raises:
        InputError: there is no sweep.
    """
    groups = sweeps_by_name(cases if among is None else among)
    if not groups:
        law = f"hold no sweep: no {MIN_ROWS} rows that differ in their layout alone, of which one ran"
        raise InputError("the published runs", law, "give a table of sweeps")
    searches: list[SearchRun] = []
    sweeps: list[ReplayedSweep] = []
    searched = _searched(cases, list(groups.values()), processes, samplers, seeds)
    for done, (sweep, found) in enumerate(searched, start=1):
        sweeps.append(ReplayedSweep(name=sweep.name, rows=sweep.rows, candidates=len(sweep.cases)))
        searches += found
        if on_sweep is not None:
            on_sweep(sweep.name, done, len(groups))
    summaries = tuple(summary(searches, sampler) for sampler in samplers)
    return ReplayDocument(samplers=summaries, sweeps=tuple(sweeps), searches=tuple(searches))


def _searched(
    cases: Sequence[Case], groups: Sequence[Sequence[Case]], processes: int, samplers: Sequence[str], seeds: int
) -> Iterator[tuple[Sweep, list[SearchRun]]]:
    """All sweeps with their searches, priced without their own rows, on several processes. A sweep waits only for the factors of
    its own source and family.
    """
    by_stack: dict[str, list[Case]] = {}
    for case in cases:
        by_stack.setdefault(case.stack.name, []).append(case)
    kinds = {kind_of(group): group for group in groups}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        common = {kind: pool.submit(common_without, cases, group) for kind, group in kinds.items()}
        found = [
            pool.submit(_search, by_stack[group[0].stack.name], group, common[kind_of(group)].result(), tuple(samplers), seeds)
            for group in groups
        ]
        for sweep in found:
            yield sweep.result()


def _search(
    cases: Sequence[Case], group: Sequence[Case], common: Calibration, samplers: Sequence[str], seeds: int
) -> tuple[Sweep, list[SearchRun]]:
    sweep = priced_without(cases, group, common)
    runs = [(sampler, seed) for sampler in samplers for seed in range(1 if sampler in DETERMINISTIC_SAMPLERS else seeds)]
    return sweep, [search_run(sweep, sampler, seed) for sampler, seed in runs]


def kind_of(group: Sequence[Case]) -> tuple[str, str]:
    """Source and stack family of a sweep; sweeps with the same pair share their common factors."""
    return group[0].row.file, group[0].stack.family


def search_run(sweep: Sweep, sampler: str, seed: int, others: Sequence[OtherStudies] = ()) -> SearchRun:
    """A search of the sweep until a trial is near its best; ``others`` are sweeps that were searched before."""
    features, best = features_of(sweep), float(sweep.step_seconds.min())
    observations: list[ObservedCandidate] = []
    regret: list[float] = []
    while not regret or regret[-1] > CLOSE:
        index, _ = choose(features, observations, sampler, seed, others=others)
        seconds = float(sweep.step_seconds[index])
        observations.append(observation_at(index, seconds))
        regret.append(min(regret[-1] if regret else np.inf, seconds / best - 1))
    ran = [item.value for item in observations if item.value is not None]
    return SearchRun(
        sweep=sweep.name,
        sampler=sampler,
        seed=seed,
        regret=tuple(share if isfinite(share) else None for share in regret),
        failed=len(observations) - len(ran),
        device_hours=sweep.devices * (len(observations) * START_SECONDS + STEPS * sum(ran)) / 3600,
    )


def features_of(sweep: Sweep) -> CandidateFeatures:
    """Features of the sweep's candidates."""
    seconds, like = sweep.part_seconds, sweep.cases[0]
    return CandidateFeatures(
        settings=tuple({**settings_of(case.candidate), "accumulation": case.accumulation} for case in sweep.cases),
        predicted=sweep.predicted_seconds,
        memory_ratio=sweep.memory_ratio,
        shares=seconds / seconds.sum(axis=1, keepdims=True),
        contexts=(context(like.model, like.cluster, like.workload),),
    )


def summary(searches: Sequence[SearchRun], sampler: str) -> Summary:
    """Summary of the searches of one sampler."""
    sampler_searches = [item for item in searches if item.sampler == sampler]
    trials = [item.trials for item in sampler_searches]
    seeds = sorted({item.seed for item in sampler_searches})
    medians = [statistics.median(item.trials for item in sampler_searches if item.seed == seed) for seed in seeds]
    return Summary(
        sampler=sampler,
        searches=len(sampler_searches),
        median_trials=statistics.median(trials),
        tenth_to_ninth=(float(np.percentile(trials, 10)), float(np.percentile(trials, 90))),
        medians_by_seed=(min(medians), max(medians)),
        mean_trials=statistics.fmean(trials),
        most_trials=max(trials),
        failed_share=sum(item.failed for item in sampler_searches) / sum(trials),
        median_device_hours=statistics.median(item.device_hours for item in sampler_searches),
    )


def observation_at(index: int, seconds: float) -> ObservedCandidate:
    """Observation of a trial of the row at ``index``; infinite seconds mean that it failed."""
    if isfinite(seconds):
        return ObservedCandidate(index=index, value=seconds)
    return ObservedCandidate(index=index, failed=True, out_of_memory=OOM_PROBABILITY)
