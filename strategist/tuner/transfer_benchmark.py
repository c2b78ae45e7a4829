"""Transfer benchmark: searches published sweeps after another sweep of another model or another number of GPUs."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations, repeat
from math import sqrt
from multiprocessing import get_context

from strategist.accuracy.case import Case
from strategist.accuracy.sweep import Sweep, common_without, priced_by, sweeps_by_name
from strategist.contract.replay import FEW_DOUBLINGS, SEEN_BEFORE, STARTS, TRIALS, Savings, Transfer, TransferDocument
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.errors import InputError
from strategist.search.study import choose
from strategist.search.surrogate import ObservedCandidate, OtherStudies
from strategist.tuner.replay_benchmark import features_of, kind_of, observation_at, search_run

MODEL, DEVICES = 1, 3
"""Positions of model and devices in the tuple that identifies a sweep; a pair of sweeps may differ in one of them."""


OnPair = Callable[[str, int, int], None]


def transfer(
    cases: Sequence[Case], *, among: Sequence[Case] | None = None, processes: int = 1, on_pair: OnPair | None = None
) -> TransferDocument:
    """Searches every sweep among ``among`` (default: all ``cases``) after every other one that differs only in its model or only in
    its GPUs, from each of ``STARTS``.

    No row of their source is used for either search, except the trials of the earlier search.

    Raises:
        InputError: there is no such pair.
    """
    groups = sweeps_by_name(cases if among is None else among)
    pairs = [pair for pair in permutations(groups.values(), 2) if _changed(*pair)]
    if not pairs:
        raise InputError("the published runs", "hold no two sweeps that differ in model or GPUs alone", "give a table of sweeps")
    kinds = {kind_of(own): own for pair in pairs for own in pair}
    found: list[Transfer] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        common = dict(zip(kinds, pool.map(common_without, repeat(cases), kinds.values()), strict=True))
        before, own = zip(*pairs, strict=True)
        for done, transfers in enumerate(pool.map(_searched, before, own, (common[kind_of(group)] for group in own)), start=1):
            found += transfers
            if on_pair is not None:
                on_pair(f"{transfers[0].sweep} after {transfers[0].before}", done, len(pairs))
    return TransferDocument(after=SEEN_BEFORE, saved=tuple(savings(found)), transfers=tuple(found))


def savings(found: Sequence[Transfer]) -> Iterator[Savings]:
    """Trials saved by the earlier searches, by start, nearness and what changed."""
    for start in STARTS:
        for is_near in (True, False):
            for changed in ("GPUs", "model"):
                group_transfers = [item for item in found if (item.start, item.near, item.changed) == (start, is_near, changed)]
                if group_transfers:
                    yield _savings_of(group_transfers)


def _savings_of(found: Sequence[Transfer]) -> Savings:
    searches = list(zip(*(item.searches for item in found), strict=True))
    trials = [[run.trials for run in runs] for runs in searches]
    return Savings(
        start=found[0].start,
        changed=found[0].changed,
        near=found[0].near,
        pairs=len(found),
        median_trials=tuple(map(statistics.median, trials)),
        mean_trials=tuple(map(statistics.fmean, trials)),
        most_trials=tuple(map(max, trials)),
        failed_shares=tuple(sum(run.failed for run in runs) / sum(run.trials for run in runs) for runs in searches),
    )


def _changed(before_cases: Sequence[Case], after: Sequence[Case]) -> str:
    """``model`` or ``GPUs`` if two sweeps differ in that alone; otherwise empty."""
    differing = [
        index for index, (value, other) in enumerate(zip(before_cases[0].sweep, after[0].sweep, strict=True)) if value != other
    ]
    return "model" if differing == [MODEL] else "GPUs" if differing == [DEVICES] else ""


def _searched(before: Sequence[Case], after: Sequence[Case], common: Calibration) -> list[Transfer]:
    """The transfer between two sweeps from each of ``STARTS``."""
    return [
        transfer_search(start, priced_by(calibration, before), priced_by(calibration, after))
        for start, calibration in zip(STARTS, (NEUTRAL, common), strict=True)
    ]


def transfer_search(start: str, before: Sweep, after: Sweep) -> Transfer:
    """Searches of a sweep after each of ``SEEN_BEFORE``: no other trial, some trials of the sweep ``before``, and all of its rows.
    Both sweeps are priced alike.
    """
    features_before = features_of(before)
    everything = [observation_at(index, float(seconds)) for index, seconds in enumerate(before.step_seconds)]
    others = [
        [],
        *(
            [OtherStudies(features=features_before, observations=tuple(observations))]
            for observations in (_first_trials(before), everything)
        ),
    ]
    return Transfer(
        before=before.name,
        sweep=after.name,
        start=start,
        changed=_changed(before.cases, after.cases),
        near=sqrt(features_before.contexts[0].squared_distance(features_of(after).contexts[0])) <= FEW_DOUBLINGS,
        searches=tuple(search_run(after, "surrogate", 0, observations) for observations in others),
    )


def _first_trials(sweep: Sweep) -> list[ObservedCandidate]:
    """The first trials of a search of the sweep; the search does not stop when it is near the best."""
    features = features_of(sweep)
    observations: list[ObservedCandidate] = []
    while len(observations) < min(TRIALS, len(features)):
        index, _ = choose(features, observations, "surrogate")
        observations.append(observation_at(index, float(sweep.step_seconds[index])))
    return observations
