"""Blame: which settings made a trial crash, by trials between it and one that ran (delta debugging: Zeller and Hildebrandt, IEEE
Transactions on Software Engineering 28, 2002, section 3). All of it is read off the finished trials, so any tuner can go on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strategist.contract.measurement import RAN, Outcome
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.search.settings import Settings
from strategist.search.tuning_result import CrashCause, TrialResult

CONVICTING = 2
"""So many trials must have crashed with the settings: a single crash may have come from elsewhere."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A crashed trial, the one most like it that ran, and what the first has other than the second."""

    crashed: int
    ran: int
    suspects: Settings


def crash_causes(results: Iterable[TrialResult], ranked: Sequence[Plan]) -> tuple[CrashCause, ...]:
    """Settings that no candidate needs to be tried with any more: trials with them crashed, one without ran, and no candidate lies
    between these."""
    known = list(results)
    found: dict[tuple[tuple[str, object], ...], CrashCause] = {}
    for case in _cases(known):
        crashed = _crashed_with(known, case.suspects)
        if len(crashed) >= CONVICTING and not _between(known, ranked, case):
            convicted = CrashCause(settings=dict(case.suspects), crashed=tuple(crashed), ran=case.ran)
            found.setdefault(tuple(sorted(convicted.settings.items())), convicted)
    return tuple(found.values())


def excluded(plan: Plan, blames: Iterable[CrashCause]) -> bool:
    """Whether the plan has settings to which blame was laid."""
    own = settings_of(plan.candidate)
    return any(_has(own, cause.settings) for cause in blames)


def next_question(results: Iterable[TrialResult], ranked: Sequence[Plan]) -> tuple[Plan, int] | None:
    """The plan whose trial says most of why another one crashed, and that one's number: one with half of what is suspected, or the
    crashed one again where no candidate has a part of it."""
    known = list(results)
    plans = {result.number: result.plan for result in known}
    for case in _cases(known):
        if between := _between(known, ranked, case):
            half = len(case.suspects) / 2
            return min(between, key=lambda plan: abs(_shared(plan, case.suspects) - half)), case.crashed
        if len(_crashed_with(known, case.suspects)) < CONVICTING:
            return plans[case.crashed], case.crashed
    return None


def _cases(known: Sequence[TrialResult]) -> list[_Case]:
    """One for each trial that crashed, beside the trial that ran with most of its settings; a candidate that did both has none, nor
    one that has all suspects of a smaller case."""
    ran = [(result.number, _decided(result.plan)) for result in known if _outcome(result) in RAN]
    cases = []
    for result in known:
        if _outcome(result) is Outcome.CRASH and ran:
            own = _decided(result.plan)
            differing = [(number, {name: own[name] for name in own if own[name] != other[name]}) for number, other in ran]
            number, suspects = min(differing, key=lambda item: len(item[1]))
            if suspects:
                cases.append(_Case(crashed=result.number, ran=number, suspects=suspects))
    plans = {result.number: _decided(result.plan) for result in known}
    return [
        case
        for case in cases
        if not any(len(less.suspects) < len(case.suspects) and _has(plans[case.crashed], less.suspects) for less in cases)
    ]


def _between(known: Sequence[TrialResult], ranked: Sequence[Plan], case: _Case) -> list[Plan]:
    """Untried candidates that have some of the suspects but not all, and else what the trial that ran has."""
    tried = [_decided(result.plan) for result in known]
    base = _decided(next(result.plan for result in known if result.number == case.ran))
    found = []
    for plan in ranked:
        own = _decided(plan)
        changed = {name: own[name] for name in own if own[name] != base[name]}
        if 0 < len(changed) < len(case.suspects) and _has(case.suspects, changed) and own not in tried:
            found.append(plan)
    return found


def _crashed_with(known: Iterable[TrialResult], suspects: Settings) -> list[int]:
    return [item.number for item in known if _outcome(item) is Outcome.CRASH and _has(_decided(item.plan), suspects)]


def _outcome(result: TrialResult) -> Outcome | None:
    return None if result.measurement is None else result.measurement.outcome


def _decided(plan: Plan) -> Settings:
    """What the search decides; options follow from it."""
    return {name: value for name, value in settings_of(plan.candidate).items() if not name.startswith("options.")}


def _has(own: Settings, wanted: Mapping[str, object]) -> bool:
    return all(own.get(name) == value for name, value in wanted.items())


def _shared(plan: Plan, suspects: Settings) -> int:
    own = settings_of(plan.candidate)
    return sum(own[name] == value for name, value in suspects.items())
