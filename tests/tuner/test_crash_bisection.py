"""Which settings are to blame for crashes, and which trial would say more of it."""

from itertools import count

from search.plans import measured, plan

from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.contract.study import TrialResult
from strategist.tuner.crash_bisection import crash_causes, excluded, next_question

NUMBERS = count(1)
GUILTY = "knobs.recompute"

SPACE = [
    plan(1.0, recompute=recompute, reshard_after_forward=reshard, micro_batch=micro_batch)
    for recompute in ("none", "full")
    for reshard in (True, False)
    for micro_batch in (1, 2, 4)
]


def guilty(of: Plan) -> bool:
    return settings_of(of.candidate)[GUILTY] == "full"


def trial(of: Plan, *, crashes: bool) -> TrialResult:
    found = measured(of, Outcome.CRASH if crashes else Outcome.OK)
    return TrialResult(number=next(NUMBERS), proposed_by="search", plan=of, measurement=found)


def asked(first: list[TrialResult], space: list[Plan] = SPACE) -> list[TrialResult]:
    """The trials that follow, until the cause is known."""
    known = list(first)
    while (question := next_question(known, [own for own in space if not excluded(own, crash_causes(known, space))])) is not None:
        known.append(trial(question[0], crashes=guilty(question[0])))
        assert len(known) < 20
    return known


def test_the_guilty_setting_is_found_among_several_in_a_few_trials() -> None:
    ran, crashed = SPACE[0], SPACE[-1]
    known = asked([trial(ran, crashes=False), trial(crashed, crashes=True)])
    (found,) = crash_causes(known, SPACE)
    assert found.settings == {GUILTY: "full"}
    assert len(known) <= 5
    assert [own for own in SPACE if excluded(own, [found])] == [own for own in SPACE if guilty(own)]


def test_a_single_crash_is_repeated_before_anything_is_blamed() -> None:
    ran, crashed = SPACE[0], next(own for own in SPACE if guilty(own))
    known = [trial(ran, crashes=False), trial(crashed, crashes=True)]
    assert crash_causes(known, [ran, crashed]) == ()
    question = next_question(known, [ran, crashed])
    assert question == (crashed, known[1].number)


def test_a_crash_that_does_not_come_again_blames_nothing() -> None:
    ran, crashed = SPACE[0], SPACE[-1]
    known = [trial(ran, crashes=False), trial(crashed, crashes=True), trial(crashed, crashes=False)]
    assert crash_causes(known, SPACE) == ()
    assert next_question(known, SPACE) is None


def test_what_cannot_be_taken_apart_is_blamed_together() -> None:
    ran, crashed = SPACE[0], SPACE[-1]
    known = asked([trial(ran, crashes=False), trial(crashed, crashes=True)], [ran, crashed])
    (found,) = crash_causes(known, [ran, crashed])
    assert set(found.settings) == {GUILTY, "knobs.reshard_after_forward", "knobs.micro_batch"}


def test_nothing_is_asked_where_nothing_ran_or_nothing_crashed() -> None:
    assert next_question([trial(SPACE[0], crashes=True)], SPACE) is None
    assert next_question([trial(SPACE[0], crashes=False)], SPACE) is None
