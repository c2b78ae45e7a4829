"""Finalists: the best candidate, repeats of the best two, and when the comparison is conclusive."""

from dataclasses import replace
from itertools import count

from search.plans import measured, plan

from strategist.contract.goals import THROUGHPUT_ONLY
from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import REPEAT, TrialResult
from strategist.tuner.finalists import MAX_ROUNDS, confirmation, finalists, next_repeat

NUMBERS = count(1)
A, B, C = plan(1.0, dp_shard=4), plan(1.0, dp_shard=2, tp=2), plan(1.0, dp_shard=1, tp=4)


def trial(of: Plan, seconds: float, *, repeat: bool = False, outcome: Outcome = Outcome.OK, spread: float = 0.0) -> TrialResult:
    found = replace(measured(of, outcome, seconds), step_seconds_spread=spread)
    return TrialResult(number=next(NUMBERS), proposed_by=REPEAT if repeat else "search", plan=of, measurement=found)


def repeats_of(trials: list[TrialResult], seconds: dict[str, float], repeats: int = 2) -> list[TrialResult]:
    """The repeats that follow, each with its candidate's true step time."""
    repeats_run: list[TrialResult] = []
    while (chosen := next_repeat(finalists([*trials, *repeats_run], THROUGHPUT_ONLY), repeats, len(repeats_run))) is not None:
        own = chosen.trial.plan
        repeats_run.append(trial(own, seconds[own.id], repeat=True))
    return repeats_run


def test_the_best_finalist_is_the_fastest() -> None:
    assert [finalist.trial.plan for finalist in finalists([trial(A, 1.0), trial(B, 0.9)], THROUGHPUT_ONLY)] == [B, A]


def test_repeats_replace_the_first_measurement() -> None:
    lucky = [trial(A, 0.8), trial(B, 0.81), trial(A, 1.0, repeat=True), trial(A, 1.0, repeat=True)]
    assert finalists(lucky, THROUGHPUT_ONLY)[0].trial.plan is B


def test_a_candidate_with_a_failure_is_no_finalist() -> None:
    assert finalists([trial(A, 1.0), trial(A, 1.0, repeat=True, outcome=Outcome.OOM)], THROUGHPUT_ONLY) == ()
    assert finalists([trial(A, 1.0, outcome=Outcome.PRUNED)], THROUGHPUT_ONLY) == ()


def test_the_best_two_candidates_alternate() -> None:
    repeats_run = repeats_of([trial(A, 1.0), trial(B, 1.02), trial(C, 2.0)], {A.id: 1.0, B.id: 1.03, C.id: 2.0})
    assert [item.plan for item in repeats_run] == [A, B, A, B]


def test_a_slower_repeat_admits_the_next_candidate() -> None:
    repeats_run = repeats_of([trial(A, 1.0), trial(B, 1.01), trial(C, 1.02)], {A.id: 1.3, B.id: 1.01, C.id: 1.02})
    assert repeats_run[0].plan is A
    assert {item.plan.id for item in repeats_run[1:]} == {B.id, C.id}


def test_repeats_end_although_all_candidates_are_equal() -> None:
    many = [plan(1.0, dp_shard=size) for size in range(1, 20)]
    repeats_run = repeats_of([trial(own, 1.0) for own in many], {own.id: 1.0 + place % 3 / 100 for place, own in enumerate(many)})
    assert len(repeats_run) <= 2 * MAX_ROUNDS


def test_a_clear_best_is_not_repeated() -> None:
    assert repeats_of([trial(A, 1.0), trial(B, 1.2)], {}) == []
    assert repeats_of([trial(A, 1.0)], {}) == []


def test_a_large_step_spread_causes_repeats() -> None:
    assert (
        len(repeats_of([trial(A, 1.0, spread=0.5), trial(B, 1.2, spread=0.5)], {A.id: 1.0, B.id: 1.2})) == 2
    )  # then the comparison is conclusive


def test_winning_every_pair_is_conclusive_and_winning_some_is_not() -> None:
    first = [trial(A, 1.0), trial(B, 1.02)]
    sure = confirmation(finalists([*first, *repeats_of(first, {A.id: 1.0, B.id: 1.03})], THROUGHPUT_ONLY))
    assert sure is not None
    assert sure.conclusive
    assert len(sure.pairs) == 2
    mixed = [trial(A, 1.0, repeat=True), trial(B, 0.99, repeat=True), trial(A, 1.0, repeat=True), trial(B, 1.03, repeat=True)]
    unsure = confirmation(finalists([*first, *mixed], THROUGHPUT_ONLY))
    assert unsure is not None
    assert not unsure.conclusive


def test_a_large_lead_is_conclusive_without_repeats() -> None:
    found = confirmation(finalists([trial(A, 1.0), trial(B, 2.0)], THROUGHPUT_ONLY))
    assert found is not None
    assert found.conclusive
    assert not found.in_doubt


def test_a_single_candidate_has_no_confirmation() -> None:
    assert confirmation(finalists([trial(A, 1.0)], THROUGHPUT_ONLY)) is None
