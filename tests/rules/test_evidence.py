"""Policies that measured trials confirm or contradict."""

from typing import Any

from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.contract.evidence import Pair
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.expr.columns import row_of
from strategist.files import yaml_file
from strategist.rules.evidence import Trial, evidence, survey

HEAD = "StrategyCard:\n  id: A-1\n  module: tp\n  intent: a\n  policies:\n"


def deck(effect: str) -> Deck:
    return Deck(
        (read_card(yaml_file.parse(f"{HEAD}    - id: p\n      when: model.layers > 4\n      {effect}\n      because: b\n")),)
    )


def trial(
    seconds: float | None,
    name: str = "",
    *,
    layers: int = 8,
    dp_shard: int = 4,
    tp: int = 1,
    by: str = "",
    seen: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **knobs: Any,
) -> Trial:
    candidate = Candidate(layout=Layout(dp_shard=dp_shard, tp=tp), knobs=Knobs(**knobs), options=Options(**(options or {})))
    known = {**row_of(candidate, 1), "model.layers": layers, **(seen or {})}
    return Trial(known=known, seconds=seconds, name=name, proposed_by=by)


def counts(effect: str, *trials: Trial) -> tuple[int, int] | None:
    found = evidence(deck(effect), trials)
    return (found[0].confirmed, found[0].contradicted) if found else None


PREFER = "prefer: {recompute: none}"


def test_the_faster_trial_of_a_pair_decides() -> None:
    assert counts(PREFER, trial(1.0), trial(1.3, recompute="full")) == (1, 0)
    assert counts(PREFER, trial(1.3, recompute="full"), trial(1.0)) == (1, 0)
    assert counts(PREFER, trial(1.5), trial(1.3, recompute="full")) == (0, 1)
    assert counts(PREFER, trial(1.0), trial(1.3, recompute="full"), trial(0.9, recompute="selective")) == (1, 1)


def test_a_difference_within_the_margin_is_no_evidence() -> None:
    assert counts(PREFER, trial(1.0), trial(1.01, recompute="full")) is None


def test_a_successful_trial_beats_a_failed_one() -> None:
    assert counts(PREFER, trial(1.0), trial(None, recompute="full")) == (1, 0)
    assert counts(PREFER, trial(None), trial(1.0, recompute="full")) == (0, 1)
    assert counts(PREFER, trial(None), trial(None, recompute="full")) is None


def test_pairs_with_other_differences_or_outside_the_condition_do_not_count() -> None:
    assert counts(PREFER, trial(1.0, micro_batch=2), trial(1.3, recompute="full")) is None
    assert counts(PREFER, trial(1.0, layers=8), trial(1.3, layers=9, recompute="full")) is None
    assert counts(PREFER, trial(1.0, layers=2), trial(1.3, layers=2, recompute="full")) is None
    assert counts(PREFER, trial(1.0), trial(1.3)) is None


def test_degrees_of_a_pair_may_change_together() -> None:
    assert counts("prefer: {tp: 1}", trial(1.0), trial(1.3, tp=4, dp_shard=1)) == (1, 0)
    assert counts("prefer: {tp: 1}", trial(1.0), trial(1.3, tp=4, dp_shard=1, recompute="full")) is None


def test_laws_and_defaults_have_evidence_too() -> None:
    pair = trial(1.0), trial(1.3, recompute="full")
    assert counts("require: {recompute: none}", *pair) == (1, 0)
    assert counts("set: {recompute: none}", *pair) == (1, 0)
    assert counts("warn: true", *pair) is None
    (found,) = evidence(deck(PREFER), pair)
    assert (found.card, found.policy) == ("A-1", "p")


def test_a_pair_names_its_trials_and_differences() -> None:
    (found,) = evidence(deck(PREFER), [trial(1.0, "1"), trial(None, "2", recompute="full")])
    assert found.pairs == (
        Pair(
            confirms=True, followed="1", ignored="2", followed_seconds=1.0, ignored_seconds=None,
            differs={"knobs.recompute": ("none", "full")},
        ),
    )  # fmt: skip


def test_a_policy_is_applied_if_its_condition_holds_and_the_candidate_follows() -> None:
    trials = [trial(1.0), trial(1.0, micro_batch=2), trial(1.0, recompute="full"), trial(1.0, layers=2)]
    (found,) = survey(deck(PREFER), trials)
    assert (found.applied, found.confirmed, found.contradicted, found.has_pairs) == (2, 0, 0, False)
    (avoided,) = survey(deck("forbid: {recompute: full}"), trials)
    assert avoided.applied == 2


def test_options_that_follow_other_settings_do_not_exclude_a_pair() -> None:
    other = trial(1.3, tp=4, dp_shard=1, options={"layers_per_unit": 2})
    assert counts("prefer: {tp: 1}", trial(1.0), other) == (1, 0)
    follower = trial(1.3, options={"layers_per_unit": 2, "prefetch_units": 2})
    assert counts("prefer: {layers_per_unit: 1}", trial(1.0), follower) is None
    assert counts("prefer: {layers_per_unit: 1}", trial(1.0), trial(1.3, options={"layers_per_unit": 2})) == (1, 0)


FORBID = "forbid: {recompute: full}"
OOM = {"observed.outcome": "oom"}


def test_a_faster_forbidden_candidate_contradicts_its_law() -> None:
    assert counts(FORBID, trial(1.0), trial(0.8, recompute="full")) == (0, 1)
    assert counts(FORBID, trial(1.0), trial(1.2, recompute="full")) == (1, 0)
    assert counts(FORBID, trial(1.0, layers=2), trial(0.8, layers=2, recompute="full")) is None


def test_a_forbidden_candidate_out_of_memory_confirms_its_law() -> None:
    assert counts(FORBID, trial(None, recompute="full", seen=OOM)) == (1, 0)
    assert counts(FORBID, trial(None, recompute="full", seen=OOM), trial(1.0)) == (1, 0)
    assert counts(FORBID, trial(None, recompute="full", seen=OOM), trial(None, seen=OOM)) is None
    assert counts(FORBID, trial(None, recompute="full", seen={"observed.outcome": "crash"})) is None


def test_evidence_for_forbidden_candidates_follows_the_settings_in_the_condition() -> None:
    rule = Deck(
        (read_card(yaml_file.parse(f"{HEAD}    - {{id: p, when: knobs.micro_batch > 2, forbid: candidate, because: b}}\n")),)
    )
    (found,) = evidence(rule, [trial(1.0, micro_batch=2), trial(0.5, micro_batch=4)])
    assert (found.confirmed, found.contradicted) == (0, 1)
    assert evidence(rule, [trial(1.0, micro_batch=2, recompute="full"), trial(0.5, micro_batch=4)]) == ()


TRY = "{id: p, phase: observe, when: observed.mfu < 0.3, try: {recompute: full}, because: b}"


def test_a_proposal_is_compared_with_the_trial_it_followed() -> None:
    rule = Deck((read_card(yaml_file.parse(f"{HEAD}    - {TRY}\n")),))
    slow, fast = {"observed.mfu": 0.1}, {"observed.mfu": 0.5}
    trials = [
        trial(1.0, "1", seen=slow),
        trial(1.0, "2", micro_batch=2, seen=fast),
        trial(0.7, "3", recompute="full", seen=slow, by="card:A-1/p"),
        trial(1.0, "4", micro_batch=4, seen=slow),
        trial(1.4, "5", recompute="full", micro_batch=4, seen=slow, by="card:A-1/p"),
        trial(0.1, "6", recompute="full", micro_batch=8, by="search"),
    ]
    (found,) = survey(rule, trials)
    assert (found.applied, found.taken, found.confirmed, found.contradicted) == (2, 2, 1, 1)
    assert [(pair.followed, pair.ignored, pair.confirms) for pair in found.pairs] == [("3", "1", True), ("5", "4", False)]
