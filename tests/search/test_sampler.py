"""Which candidate is tried next."""

from search.plans import measured, plan
from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.search.sampler import EXPLORE_EVERY
from strategist.search.study import Tried, propose


def tried(*plans: Plan) -> list[Tried]:
    return [Tried(plan=item, measurement=measured(item)) for item in plans]


def test_the_best_predicted_comes_first() -> None:
    ranked = [plan(1.0, micro_batch=2), plan(1.0, micro_batch=1, preferences=3), plan(2.0, micro_batch=4)]
    assert propose(ranked, []) is ranked[0]


def test_then_the_next_best_until_all_were_tried() -> None:
    ranked = [plan(1.0 + i, micro_batch=i + 1) for i in range(3)]
    assert propose(ranked, tried(ranked[0])) is ranked[1]
    assert propose(ranked, tried(*ranked[:2])) is ranked[2]
    assert propose(ranked, tried(*ranked)) is None


def test_a_running_trial_is_not_proposed_again() -> None:
    ranked = [plan(1.0), plan(2.0, micro_batch=2)]
    assert propose(ranked, [Tried(plan=ranked[0])]) is ranked[1]


def test_preferences_of_cards_break_near_ties_and_nothing_else() -> None:
    first, near, preferred, far = (
        plan(1.00), plan(1.01, micro_batch=2), plan(1.04, micro_batch=4, preferences=1), plan(1.2, micro_batch=8, preferences=2),
    )  # fmt: skip
    assert propose([first, near, preferred, far], tried(plan(0.9, recompute="full"))) is preferred


def test_among_equals_the_one_least_like_what_was_tried() -> None:
    first = plan(1.0)
    alike, unlike = plan(1.01, micro_batch=2), plan(1.02, micro_batch=2, recompute="full", reduce_dtype="bf16")
    assert propose([first, alike, unlike], tried(first)) is unlike


def test_some_proposals_go_to_new_degrees_of_parallelism() -> None:
    known = [plan(1.0 + i, micro_batch=i + 1) for i in range(EXPLORE_EVERY)]
    new = plan(9.0, dp_shard=2, tp=2)
    assert propose([*known, new], tried(*known[: EXPLORE_EVERY - 1])) is new
    assert propose([*known, new], tried(*known[: EXPLORE_EVERY - 2])) is known[EXPLORE_EVERY - 2]


def test_after_an_out_of_memory_what_needs_as_much_comes_last() -> None:
    large, larger, small = plan(1.0, peak=600), plan(2.0, peak=700, micro_batch=2), plan(3.0, peak=500, micro_batch=4)
    failed = Tried(plan=large, measurement=measured(large, Outcome.OOM))
    assert propose([large, larger, small], [failed]) is small
    assert propose([large, larger, small], [failed, *tried(small)]) is larger


def test_the_memory_objective_ties_by_memory() -> None:
    ranked = [
        plan(3.0, peak=100),
        plan(1.0, peak=103, micro_batch=2, preferences=1),
        plan(3.0, peak=200, micro_batch=4, preferences=2),
    ]
    assert propose(ranked, tried(plan(1.0, recompute="full")), objective="memory") is ranked[1]
