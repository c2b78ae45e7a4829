"""Transfer benchmark: published sweeps searched after another sweep, of another model or on more or fewer GPUs."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations, repeat
from math import sqrt
from multiprocessing import get_context

from strategist.accuracy.case import Case
from strategist.accuracy.sweep import Sweep, common_without, grouped, priced_by
from strategist.contract.replay import AFTER, FEW_DOUBLINGS, STARTS, TRIALS, Savings, Transfer, TransferDocument
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.errors import InputError
from strategist.search.study import choose
from strategist.search.surrogate import ObservedCandidate, OtherStudies
from strategist.tuner.replay_benchmark import prospects_of, search_run, seen_at

MODEL, DEVICES = 1, 3
"""Places in a sweep's name of what may differ."""


OnPair = Callable[[str, int, int], None]


def transfer(
    cases: Sequence[Case], *, among: Sequence[Case] | None = None, processes: int = 1, on_pair: OnPair | None = None
) -> TransferDocument:
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
    return TransferDocument(after=AFTER, saved=tuple(savings(found)), transfers=tuple(found))


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
