"""Which settings cause crashes, and which trial narrows the cause further."""

from itertools import count

from search.plans import measured, plan

from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.contract.study import TrialResult
from strategist.tuner.crash_bisection import crash_causes, excluded, next_question

NUMBERS = count(1)
CAUSE = "knobs.recompute"

SPACE = [
    plan(1.0, recompute=recompute, reshard_after_forward=reshard, micro_batch=micro_batch)
    for recompute in ("none", "full")
    for reshard in (True, False)
    for micro_batch in (1, 2, 4)
]


def crashes_with(of: Plan) -> bool:
    return settings_of(of.candidate)[CAUSE] == "full"


def trial(of: Plan, *, crashes: bool) -> TrialResult:
    found = measured(of, Outcome.CRASH if crashes else Outcome.OK)
    return TrialResult(number=next(NUMBERS), proposed_by="search", plan=of, measurement=found)


def bisect(first: list[TrialResult], space: list[Plan] = SPACE) -> list[TrialResult]:
    """Runs trials until the cause is known."""
    known = list(first)
    while (next_trial := next_question(known, [own for own in space if not excluded(own, crash_causes(known, space))])) is not None:
        known.append(trial(next_trial[0], crashes=crashes_with(next_trial[0])))
        assert len(known) < 20
    return known


def test_the_crashing_setting_is_found_in_few_trials() -> None:
    ran, crashed = SPACE[0], SPACE[-1]
    known = bisect([trial(ran, crashes=False), trial(crashed, crashes=True)])
    (found,) = crash_causes(known, SPACE)
    assert found.settings == {CAUSE: "full"}
    assert len(known) <= 5
    assert [own for own in SPACE if excluded(own, [found])] == [own for own in SPACE if crashes_with(own)]


def test_a_single_crash_is_repeated_before_a_cause_is_named() -> None:
    ran, crashed = SPACE[0], next(own for own in SPACE if crashes_with(own))
    known = [trial(ran, crashes=False), trial(crashed, crashes=True)]
    assert crash_causes(known, [ran, crashed]) == ()
    next_trial = next_question(known, [ran, crashed])
    assert next_trial == (crashed, known[1].number)


def test_a_crash_that_does_not_recur_has_no_cause() -> None:
    ran, crashed = SPACE[0], SPACE[-1]
    known = [trial(ran, crashes=False), trial(crashed, crashes=True), trial(crashed, crashes=False)]
    assert crash_causes(known, SPACE) == ()
    assert next_question(known, SPACE) is None


def test_settings_that_cannot_be_separated_are_one_cause() -> None:
    ran, crashed = SPACE[0], SPACE[-1]
    known = bisect([trial(ran, crashes=False), trial(crashed, crashes=True)], [ran, crashed])
    (found,) = crash_causes(known, [ran, crashed])
    assert set(found.settings) == {CAUSE, "knobs.reshard_after_forward", "knobs.micro_batch"}


def test_no_trial_is_proposed_without_both_a_crash_and_a_success() -> None:
    assert next_question([trial(SPACE[0], crashes=True)], SPACE) is None
    assert next_question([trial(SPACE[0], crashes=False)], SPACE) is None
