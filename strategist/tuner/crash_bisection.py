"""Crash bisection: finds the settings that make a trial crash, by trials between it and one that ran.

The method is delta debugging (Zeller and Hildebrandt, IEEE Transactions on Software Engineering 28, 2002, section 3). Its only
input is the finished trials, so any tuner can continue it.
"""

from collections.abc import Iterable, Mapping, Sequence

from strategist.contract.measurement import RAN, Outcome
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.contract.study import TrialResult
from strategist.frozen import frozen
from strategist.search.settings import Settings
from strategist.search.tuning_result import CrashCause

MIN_CRASHES = 2
"""Number of crashes with the same settings that is needed; a single crash may have another cause."""


@frozen
class _Case:
    """A crashed trial, the most similar trial that ran, and the settings of the first that differ from the second."""

    crashed: int
    ran: int
    suspects: Settings


def crash_causes(results: Iterable[TrialResult], ranked: Sequence[Plan]) -> tuple[CrashCause, ...]:
    """Settings that crash, so that candidates with them are excluded: trials with them crashed, a trial without them ran, and no
    untried candidate lies between the two.
    """
    result_list = list(results)
    found: dict[tuple[tuple[str, object], ...], CrashCause] = {}
    for case in _cases(result_list):
        crashed = _crashed_with(result_list, case.suspects)
        if len(crashed) >= MIN_CRASHES and not _between(result_list, ranked, case):
            cause = CrashCause(settings=dict(case.suspects), crashed=tuple(crashed), ran=case.ran)
            found.setdefault(tuple(sorted(cause.settings.items())), cause)
    return tuple(found.values())


def excluded(plan: Plan, causes: Iterable[CrashCause]) -> bool:
    """Whether the plan has settings that are known to crash."""
    settings = settings_of(plan.candidate)
    return any(_includes(settings, cause.settings) for cause in causes)


def next_question(results: Iterable[TrialResult], ranked: Sequence[Plan]) -> tuple[Plan, int] | None:
    """The plan that best narrows the cause of a crash, and the number of the crashed trial.

    It is the plan closest to half of the suspected settings, or the crashed plan again if no candidate has a part of them. None
    if no crash is open.
    """
    result_list = list(results)
    plans = {result.number: result.plan for result in result_list}
    for case in _cases(result_list):
        if between := _between(result_list, ranked, case):
            half_size = len(case.suspects) / 2
            return min(between, key=lambda plan: abs(_shared_count(plan, case.suspects) - half_size)), case.crashed
        if len(_crashed_with(result_list, case.suspects)) < MIN_CRASHES:
            return plans[case.crashed], case.crashed
    return None


def _cases(results: Sequence[TrialResult]) -> list[_Case]:
    """A case for each crashed trial, with the trial that ran and shares most settings with it.

    Left out are candidates that both crashed and ran, and crashes that contain all suspects of a smaller case.
    """
    ran = [(result.number, _searched_settings(result.plan)) for result in results if _outcome(result) in RAN]
    cases = []
    for result in results:
        if _outcome(result) is Outcome.CRASH and ran:
            settings = _searched_settings(result.plan)
            differing = [
                (number, {name: settings[name] for name in settings if settings[name] != other[name]}) for number, other in ran
            ]
            number, suspects = min(differing, key=lambda item: len(item[1]))
            if suspects:
                cases.append(_Case(crashed=result.number, ran=number, suspects=suspects))
    plans = {result.number: _searched_settings(result.plan) for result in results}
    return [
        case
        for case in cases
        if not any(
            len(narrower.suspects) < len(case.suspects) and _includes(plans[case.crashed], narrower.suspects) for narrower in cases
        )
    ]


def _between(results: Sequence[TrialResult], ranked: Sequence[Plan], case: _Case) -> list[Plan]:
    """Untried candidates that differ from the trial that ran in some, but not all, of the suspects, and in nothing else."""
    tried = [_searched_settings(result.plan) for result in results]
    base = _searched_settings(next(result.plan for result in results if result.number == case.ran))
    found = []
    for plan in ranked:
        settings = _searched_settings(plan)
        changed = {name: settings[name] for name in settings if settings[name] != base[name]}
        if 0 < len(changed) < len(case.suspects) and _includes(case.suspects, changed) and settings not in tried:
            found.append(plan)
    return found


def _crashed_with(results: Iterable[TrialResult], suspects: Settings) -> list[int]:
    return [
        item.number for item in results if _outcome(item) is Outcome.CRASH and _includes(_searched_settings(item.plan), suspects)
    ]


def _outcome(result: TrialResult) -> Outcome | None:
    return None if result.measurement is None else result.measurement.outcome


def _searched_settings(plan: Plan) -> Settings:
    """Settings that the search decides; options follow from them and are left out."""
    return {name: value for name, value in settings_of(plan.candidate).items() if not name.startswith("options.")}


def _includes(settings: Settings, required: Mapping[str, object]) -> bool:
    return all(settings.get(name) == value for name, value in required.items())


def _shared_count(plan: Plan, suspects: Settings) -> int:
    settings = settings_of(plan.candidate)
    return sum(settings[name] == value for name, value in suspects.items())
