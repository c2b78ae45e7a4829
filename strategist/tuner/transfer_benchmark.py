"""Transfer benchmark: published sweeps searched after another sweep, of another model or on more or fewer GPUs."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import permutations, repeat
from math import sqrt
from multiprocessing import get_context

from strategist.accuracy.case import Case
from strategist.accuracy.sweep import Sweep, common_without, grouped, priced_by
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.errors import InputError
from strategist.search.study import choose
from strategist.search.surrogate import ObservedCandidate, OtherStudies
from strategist.tuner.replay_benchmark import SearchRun, prospects_of, search_run, seen_at

TRIALS = 10
"""Trials of the search that came before: as many as a tuning has by default."""

FEW_DOUBLINGS = 2.0
"""Sweeps that are so many doublings apart, in GPUs or in the FLOPs of a token, are near."""

STARTS = ("profiles", "other sources")
"""What is known of a sweep when no row of its source is: what profiles say, or factors that were fitted to all other sources."""

AFTER = ("nothing", f"{TRIALS} trials", "all rows")
"""What of the other sweep was seen before."""

MODEL, DEVICES = 1, 3
"""Places in a sweep's name of what may differ."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A sweep searched after ``before``, another one of the same source: ``changed`` is what they differ in, ``near`` whether by
    little, and ``searches`` are one search for each of ``AFTER``."""

    before: str
    sweep: str
    start: str
    changed: str
    near: bool
    searches: tuple[SearchRun, ...]


@dataclass(frozen=True, kw_only=True)
class Savings:
    """Searches of one kind: how many, and for each of ``AFTER`` the trials until near the best, and the share that failed."""

    start: str
    changed: str
    near: bool
    pairs: int
    median_trials: tuple[float, ...]
    mean_trials: tuple[float, ...]
    most_trials: tuple[int, ...]
    failed_shares: tuple[float, ...]


OnPair = Callable[[str, int, int], None]


def transfer(
    cases: Sequence[Case], *, among: Sequence[Case] | None = None, processes: int = 1, on_pair: OnPair | None = None
) -> tuple[Transfer, ...]:
    """Searches every sweep among ``among`` (all ``cases``) after every other one that differs from it in its model or in its GPUs
    alone, from each of ``STARTS``. No row of their source says anything of either but what the search before has seen.

    Raises:
        InputError: there is no such pair.
    """
    groups = grouped(cases if among is None else among)
    pairs = [pair for pair in permutations(groups.values(), 2) if _changed(*pair)]
    if not pairs:
        raise InputError("the published runs", "hold no two sweeps that differ in model or GPUs alone", "give a table of sweeps")
    kinds = {_kind(own): own for pair in pairs for own in pair}
    found: list[Transfer] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        common = dict(zip(kinds, pool.map(common_without, repeat(cases), kinds.values()), strict=True))
        before, own = zip(*pairs, strict=True)
        for done, both in enumerate(pool.map(_searched, before, own, (common[_kind(of)] for of in own)), start=1):
            found += both
            if on_pair is not None:
                on_pair(f"{both[0].sweep} after {both[0].before}", done, len(pairs))
    return tuple(found)


def savings(found: Sequence[Transfer]) -> Iterator[Savings]:
    """What the searches before have saved, by start and by what changed."""
    for start in STARTS:
        for near in (True, False):
            for changed in ("GPUs", "model"):
                own = [item for item in found if (item.start, item.near, item.changed) == (start, near, changed)]
                if own:
                    yield _saved(own)


def _saved(found: Sequence[Transfer]) -> Savings:
    searches = list(zip(*(item.searches for item in found), strict=True))
    trials = [[each.trials for each in own] for own in searches]
    return Savings(
        start=found[0].start,
        changed=found[0].changed,
        near=found[0].near,
        pairs=len(found),
        median_trials=tuple(map(statistics.median, trials)),
        mean_trials=tuple(map(statistics.fmean, trials)),
        most_trials=tuple(map(max, trials)),
        failed_shares=tuple(sum(each.failed for each in own) / sum(each.trials for each in own) for own in searches),
    )


def _changed(before: Sequence[Case], own: Sequence[Case]) -> str:
    """What two sweeps differ in; empty where it is nothing or more than one thing."""
    differing = [place for place, (one, other) in enumerate(zip(before[0].sweep, own[0].sweep, strict=True)) if one != other]
    return "model" if differing == [MODEL] else "GPUs" if differing == [DEVICES] else ""


def _kind(own: Sequence[Case]) -> tuple[str, str]:
    """Sweeps alike in it are priced by the same factors of other sources."""
    return own[0].row.file, own[0].stack.family


def _searched(before: Sequence[Case], own: Sequence[Case], common: Calibration) -> list[Transfer]:
    """The sweep from each of ``STARTS``."""
    return [
        transfer_search(start, priced_by(known, before), priced_by(known, own))
        for start, known in zip(STARTS, (NEUTRAL, common), strict=True)
    ]


def transfer_search(start: str, before: Sweep, own: Sweep) -> Transfer:
    """A sweep searched after nothing, after some trials of the one ``before``, and after all of it, both priced alike."""
    there = prospects_of(before)
    everything = [seen_at(place, float(seconds)) for place, seconds in enumerate(before.step_seconds)]
    others = [[], *([OtherStudies(known=there, seen=tuple(seen))] for seen in (_shots(before), everything))]
    return Transfer(
        before=before.name,
        sweep=own.name,
        start=start,
        changed=_changed(before.cases, own.cases),
        near=sqrt(there.contexts[0].squared_distance(prospects_of(own).contexts[0])) <= FEW_DOUBLINGS,
        searches=tuple(search_run(own, "surrogate", 0, seen) for seen in others),
    )


def _shots(sweep: Sweep) -> list[ObservedCandidate]:
    """The first trials of a search that does not know when it is near the best."""
    known = prospects_of(sweep)
    seen: list[ObservedCandidate] = []
    while len(seen) < min(TRIALS, len(known)):
        place, _ = choose(known, seen, "surrogate")
        seen.append(seen_at(place, float(sweep.step_seconds[place])))
    return seen
