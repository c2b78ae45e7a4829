"""The planner end to end: answers are correct, repeatable and complete, and always contain a plan or alternatives."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planning.plans import BIG, FEW, NARROW, SMALL, answer_of, best
from strategist import api
from strategist.cards.deck import Deck, load_deck
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.request import Request
from strategist.contract.settings import value_of
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.training_time import training
from strategist.errors import InputError
from strategist.planning.planner import answer, answer_stages, enumerated, price_candidate, ranked
from strategist.profiles.situation import situation
from strategist.units import GIB


def test_a_device_without_published_runs_is_named_unless_trials_priced_the_answer(deck: Deck, big: Answer) -> None:
    request = replace(SMALL, gpus="8xMI250X", fix={"pp": 1, "cp": 1, "compile": True, "recompute": "full"})
    assert "no published run on MI250X has tested the price" in answer_of(request, top=1).notes[0]
    by_trials = next(answer_stages(request, deck=deck, calibration=Calibration(), top=1))
    assert not any("published run" in note for note in by_trials.notes)
    assert not any("published run" in note for note in big.notes)


def test_alternatives_only_complete_an_answer_with_plans(deck: Deck, big: Answer) -> None:
    first = next(answer_stages(BIG, deck=deck))
    assert first == replace(big, alternatives=())
    nothing_fits = replace(SMALL, gpus="1x24GB", fix={"offload": "none"})
    assert len(list(answer_stages(nothing_fits, deck=deck))) == 1


def test_32b_has_alternatives_of_each_kind(big: Answer) -> None:
    titles = {alternative.title: alternative for alternative in big.alternatives}
    for words in ("8-bit", "LoRA", "QLoRA", "nothing offloaded"):
        assert any(words in title for title in titles), words
    larger = next(alternative for title, alternative in titles.items() if "nothing offloaded" in title)
    assert larger.plan.candidate.knobs.offload == "none"
    assert larger.plan.cluster.device == big.cluster.device
    assert larger.plan.cluster.devices > 8
    speeds = [alternative.plan.estimate.tokens_per_second for alternative in big.alternatives]
    assert speeds == sorted(speeds, reverse=True)


def test_counts_of_dropped_and_fitting_candidates_sum_to_all(big: Answer) -> None:
    dropped = sum(drop.candidates for drop in big.dropped)
    assert big.candidates == dropped + big.too_large + big.host_too_small + big.feasible
    assert min(big.candidates, dropped, big.too_large, big.feasible) > 0


def test_plans_are_legal_fit_and_have_digests_and_reasons(deck: Deck, big: Answer) -> None:
    assert len(big.plans) == 5
    for plan in (*big.plans, *(alternative.plan for alternative in big.alternatives)):
        assert plan.candidate.violations(plan.model, plan.workload, plan.cluster.devices) == ()
        assert plan.estimate.fits
        assert plan.id == plan.identified().id
        assert plan.digests.deck == deck.digest
        assert all(len(digest) == 16 for digest in vars(plan.digests).values())
    assert big.plans[0].digests.profiles == situation(BIG).digest
    assert any(plan.reasons for plan in big.plans)


def test_each_digest_changes_with_its_own_input_only(deck: Deck) -> None:
    base = best(NARROW).digests
    fewer = best(NARROW, deck.without("FSDP-001")).digests
    other = best(replace(NARROW, gpus="4xH100")).digests
    tuned = ranked(situation(NARROW), deck=deck, calibration=Calibration(compute=1.1), limit=1)[0].digests
    changed = [(fewer, "deck"), (other, "profiles"), (tuned, "calibration")]
    for digests, name in changed:
        assert {key for key, value in vars(digests).items() if value != getattr(base, key)} == {name}


def test_answers_are_byte_identical_across_processes_and_hash_seeds(big: Answer) -> None:
    code = (
        "from strategist import api; from strategist.contract import codec; from strategist.contract.request import Request;"
        "print(codec.dumps(api.plan(Request(model='32b', gpus='8x24GB'))))"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    text = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    assert text.decode() == codec.dumps(big) + "\n"
    assert codec.loads(Answer, text.decode()).plans


def test_removing_some_card_changes_the_best_plan(deck: Deck) -> None:
    fix: dict[str, Any] = {"pp": 1, "cp": 1, "compile": True}
    requests = [Request(model=model, gpus=gpus, fix=fix, confidence=0.5) for model, gpus in (("8b", "8xH100"), ("70b", "8x8xH100"))]
    assert any(_changes_without_a_card(request, deck) for request in requests)


def _changes_without_a_card(request: Request, deck: Deck) -> bool:
    before = best(request)
    dropping_cards = sorted({drop.card for drop in enumerated(situation(request), deck=deck).dropped})
    return any(best(request, deck.without(card)).candidate != before.candidate for card in dropping_cards)


def test_plans_are_ordered_by_the_objective(deck: Deck) -> None:
    fast = ranked(situation(NARROW), deck=deck)
    small = ranked(situation(replace(NARROW, objective="memory")), deck=deck)
    assert {plan.candidate for plan in fast} == {plan.candidate for plan in small}
    quickest = min(plan.estimate.step_seconds for plan in fast)
    least = min(plan.estimate.peak_memory_bytes for plan in small)
    assert fast[0].estimate.step_seconds <= 1.04 * quickest
    assert small[0].estimate.peak_memory_bytes <= 1.04 * least
    assert small[0].estimate.peak_memory_bytes < fast[0].estimate.peak_memory_bytes


def test_of_plans_in_a_near_tie_one_that_a_back_end_runs_comes_first(deck: Deck) -> None:
    """Streamed stages with a 4-bit base keep less host memory, which usually decides, but no back end runs them."""
    request = Request(model="llama3-70b", gpus="4x3090", workload=Workload(train="qlora"))
    first, *others = ranked(situation(request), deck=deck, limit=8)
    assert first.backends
    assert not all(plan.backends for plan in others)
    unlimited = [plan for plan in others if not plan.backends and plan.estimate.step_seconds < 1.04 * first.estimate.step_seconds]
    assert unlimited[0].estimate.host_memory_bytes_per_node < first.estimate.host_memory_bytes_per_node


@pytest.mark.parametrize("objective", ["cost", pytest.param("energy", marks=pytest.mark.full)])
def test_cost_and_energy_objectives_use_fewer_devices_on_slow_links(deck: Deck, objective: str) -> None:
    slow_links = Request(model="8b", gpus="4x8xRTX4090", fix={"micro_batch": 1, "cp": 1, "compile": True})
    fast, saving = best(slow_links), answer_of(replace(slow_links, objective=objective))
    used = saving.plans[0]
    assert fast.cluster.devices == 32 > saving.cluster.devices == used.cluster.devices
    for name in ("price_per_step", "energy_joules_per_step"):
        assert getattr(used.estimate, name) < 0.96 * getattr(fast.estimate, name)
    assert used.estimate.tokens_per_second < fast.estimate.tokens_per_second
    assert f"{used.cluster.devices} of 32 devices are used" in saving.verdict


def test_the_cost_objective_uses_all_devices_on_fast_links(deck: Deck) -> None:
    saving = answer_of(Request(model="8b", gpus="8xH100", objective="cost", fix={"pp": 1, "cp": 1, "compile": True}))
    assert saving.cluster.devices == 8
    assert "No part of the cluster" in saving.verdict


def test_the_energy_objective_orders_plans_by_joules(deck: Deck) -> None:
    plans = ranked(situation(replace(NARROW, objective="energy")), deck=deck)
    joules = [plan.estimate.energy_joules_per_step or 0.0 for plan in plans]
    assert 0 < joules[0] <= 1.04 * min(joules)
    assert joules[0] < joules[-1]


def test_the_energy_objective_needs_the_devices_power_limit(deck: Deck) -> None:
    with pytest.raises(InputError, match=r"--objective energy: the power limit of a .*CPU is unknown; add power_watts"):
        answer(Request(model="tiny", gpus="2xcpu", objective="energy"), deck=deck)


def test_given_tokens_each_plan_has_training_time_price_and_energy(deck: Deck, big: Answer) -> None:
    found = answer_of(replace(NARROW, tokens=10**12))
    assert len(found.trainings) == len(found.plans) > 1
    for plan, run in zip(found.plans, found.trainings, strict=True):
        tokens = run.steps * plan.workload.tokens_per_step
        assert 0 <= tokens - 10**12 < plan.workload.tokens_per_step
        assert run.seconds * run.productive_ratio == pytest.approx(tokens / plan.estimate.tokens_per_second)
        assert 0.99 < run.productive_ratio < 1, "one node rarely fails, and copies are fast"
        hours = run.seconds / 3600 * plan.cluster.devices
        assert run.price == pytest.approx(hours * (plan.cluster.device.price_per_hour or 0))
        kilowatts = (run.energy_joules or 0) / 3.6e6 / hours
        assert 0.7 * 0.7 < kilowatts < 0.7 * 1.9  # boards of 700 W, with nodes and cooling
    assert big.trainings == ()


def test_frequent_failures_shorten_the_checkpoint_interval_and_lengthen_training() -> None:
    request = Request(model="8b", gpus="4x8xH100")
    spot, owned = best(replace(request, node_seconds_between_failures=6 * 3600.0, price_per_hour=2.5)), best(request)
    after, before = training(spot, 10**12), training(owned, 10**12)
    assert spot.candidate.options.checkpoint_interval < owned.candidate.options.checkpoint_interval
    assert spot.candidate.options.max_restarts > owned.candidate.options.max_restarts
    assert after.failures > 100 * before.failures
    assert after.seconds > 1.05 * before.seconds
    assert after.price == pytest.approx(2.5 * 32 * after.seconds / 3600)


@pytest.fixture
def old_and_new(tmp_path: Path) -> Request:
    file = tmp_path / "mixed.yaml"
    file.write_text("groups:\n  - {nodes: 1, device: h100}\n  - {nodes: 1, device: a100-80gb}\n")
    return Request(model="8b", gpus=str(file), fix={"cp": 1, "compile": True})


def test_heterogeneous_nodes_are_named_and_pipeline_layers_follow_their_speed(deck: Deck, old_and_new: Request) -> None:
    found = answer_of(old_and_new)
    assert "8 of 16 devices are A100-80GB: they pace the others" in found.verdict
    first = found.plans[0]
    fast, slow = first.estimate.pipeline_layers
    assert first.candidate.layout.pp == 2
    assert fast > slow > 0
    assert fast + slow == found.model.layers
    flat = best(replace(old_and_new, fix={"pp": 1}))
    assert flat.estimate.pipeline_layers == ()
    assert flat.estimate.tokens_per_second < first.estimate.tokens_per_second
    assert price_candidate(situation(old_and_new), first.candidate, deck=deck).estimate == first.estimate


def test_excluding_slow_nodes_is_an_alternative(deck: Deck, tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text("groups:\n  - {nodes: 2, device: h100}\n  - {nodes: 1, device: v100-32gb}\n")
    found = answer(Request(model="8b", gpus=str(file), fix={"cp": 1, "compile": True}), deck=deck)
    alternative = next(alternative for alternative in found.alternatives if alternative.title == "without the 8 x V100-32GB")
    assert alternative.plan.cluster.devices == 16
    assert alternative.plan.estimate.tokens_per_second > found.plans[0].estimate.tokens_per_second
    assert not any("H100" in alternative.title for alternative in found.alternatives)


def test_known_host_memory_limits_the_plans(deck: Deck) -> None:
    narrow = replace(BIG, fix={"tp": 1, "pp": 1})
    bound = answer(replace(narrow, host_memory_bytes=256 * GIB), deck=deck)
    assert bound.plans == ()
    assert bound.host_too_small + sum(drop.candidates for drop in bound.dropped) > 0
    roomy = ranked(situation(replace(narrow, host_memory_bytes=600 * GIB)), deck=deck, limit=5)
    assert roomy
    assert all(plan.estimate.host_memory_bytes_per_node <= 600 * GIB for plan in roomy)


INFEASIBLE: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("70b", "1x24GB", 64, {}),
    ("405b", "8xH100", 512, {}),
    ("deepseek-v3", "8x24GB", 64, {}),
    ("deepseek-v3", "1x24GB", 16, {}),
    ("gpt3-175b", "4xV100-16GB", 128, {}),
    ("405b", "1x24GB", 16, {"workload": Workload(train="qlora")}),
    ("405b", "1x24GB", 16, {"workload": Workload(global_batch=1)}),
    ("405b", "1x24GB", 16, {"workload": Workload(global_batch=1, seq_len=131072)}),
    ("70b", "8x24GB", 64, {"backend": "native"}),
    ("70b", "8x24GB", 64, {"fix": {"offload": "none", "tp": 8}}),
    ("8b", "1x24GB", 16, {"fix": {"dp_shard": 1, "offload": "none"}}),
)


QUICK = (0, 5, 10)
"""Cases of every run: a model that one device cannot hold (full training and adapters), and fixed settings."""


@pytest.mark.parametrize(
    ("model", "gpus", "host_gib", "more"),
    [
        pytest.param(*case, id="-".join(map(str, case))[:60], marks=[] if number in QUICK else [pytest.mark.full])
        for number, case in enumerate(INFEASIBLE)
    ],
)
def test_a_request_that_does_not_fit_always_has_alternatives(
    deck: Deck, model: str, gpus: str, host_gib: int, more: dict[str, Any]
) -> None:
    found = answer(Request(model=model, gpus=gpus, host_memory_bytes=host_gib * GIB, **more), deck=deck)
    assert found.plans == ()
    assert found.verdict.startswith("Nothing fits.")
    assert found.alternatives
    assert found.alternatives[0].title in found.verdict
    for alternative in found.alternatives:
        assert alternative.plan.estimate.fits
        assert alternative.plan.estimate.host_memory_bytes_per_node <= (alternative.plan.cluster.host_memory_bytes or 0)


def test_few_ranked_plans_are_the_first_of_all(deck: Deck) -> None:
    asked = situation(replace(NARROW, backend="torchtitan"))
    few, every = ranked(asked, deck=deck, limit=8), ranked(asked, deck=deck)
    assert len(few) == 8 < len(every)
    assert few == every[:8]


@pytest.mark.parametrize("limit", [None, 1])
def test_a_ranking_that_the_back_end_refuses_whole_is_an_error(deck: Deck, limit: int | None) -> None:
    asked = situation(Request(model="8b", gpus="8xH100", backend="llama-factory", fix={"dp_replicate": 2}))
    with pytest.raises(InputError, match="cannot run dp_replicate 2"):
        ranked(asked, deck=deck, limit=limit)


def test_price_candidate_returns_the_ranked_plan(deck: Deck, big: Answer) -> None:
    assert best(BIG) == big.plans[0]
    for plan in big.plans:
        assert price_candidate(situation(BIG), plan.candidate, deck=deck) == plan


def test_an_illegal_candidate_raises_a_one_line_error(deck: Deck) -> None:
    illegal = Candidate(layout=Layout(tp=3), knobs=Knobs())
    with pytest.raises(InputError, match="must equal the 8 devices"):
        price_candidate(situation(BIG), illegal, deck=deck)


def test_cpu_clusters_get_no_offload_alternatives(deck: Deck) -> None:
    found = answer(Request(model="7b", gpus="8xcpu", fix=FEW), deck=deck)
    assert not found.plans
    assert all(alternative.plan.candidate.knobs.offload == "none" for alternative in found.alternatives)


@pytest.mark.parametrize("fix", [{"tp": 3}, {"micro_batch": 7}, {"tp": 16}])
def test_an_impossible_fixed_value_raises_a_one_line_error(deck: Deck, fix: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        answer(replace(BIG, fix=fix), deck=deck)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fix",
    [
        {"async_tp": True},
        {"fullgraph": True, "recompute": "none"},
        {"cp": 2, "cp_load_balance": "per_document"},
        {"checkpoint": "async_pinned"},
    ],
)
def test_fixed_options_set_the_settings_they_require(fix: dict[str, Any]) -> None:
    plan = best(replace(SMALL, fix=fix))
    assert plan.candidate.violations(plan.model, plan.workload, plan.cluster.devices) == ()
    for name, value in fix.items():
        assert value_of(plan.candidate, name) == value


@pytest.mark.parametrize(
    ("fix", "message"),
    [
        ({"fullgraph": True, "compile": False}, "fullgraph needs compile"),
        ({"checkpoint": "async_pinned", "pin_memory": False}, "checkpoint async_pinned needs pin_memory"),
        ({"async_tp": True, "tp": 1}, "async_tp needs tp above 1"),
        ({"tp": 3}, "^--gpus 4x80GB --fix tp=3: tp 3 must divide the 4 devices; change what is fixed"),
        ({"pp": 2, "tp": 3}, "pp 2 x tp 3 = 6 must divide the 4 devices; change what is fixed"),
        ({"dp_shard": 2, "dp_replicate": 1, "tp": 1, "pp": 1, "cp": 1}, "= 2 must equal the 4 devices; change what is fixed"),
        ({"micro_batch": 3}, "micro_batch 3 must divide global_batch 16; take a global batch"),
        ({"ep": 2}, "llama3-8b is dense"),
    ],
)
def test_an_error_names_the_rule_against_fixed_settings(deck: Deck, fix: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        answer(replace(SMALL, fix=fix), deck=deck, top=1)


def test_combinations_that_a_back_end_refuses_are_not_planned(deck: Deck) -> None:
    allowed = replace(BIG, allow=("float8",))
    free = best(allowed)
    assert (free.candidate.knobs.offload, free.candidate.knobs.float8) == ("streamed", "tensorwise")
    assert "native" not in free.backends
    asked = answer_of(replace(allowed, backend="native", fix={"tp": 1, "micro_batch": 1}), top=1)
    assert all("native" in plan.backends for plan in asked.plans)
    assert asked.plans[0].candidate.knobs.offload == "streamed"
    drops = sum(item.candidates for item in asked.dropped)
    assert drops + asked.too_large + asked.host_too_small + asked.feasible == asked.candidates


def test_card_defaults_yield_if_the_back_end_refuses_all_fitting_candidates() -> None:
    """accelerate does not compile with DeepSpeed, and the cards would compile on these devices."""
    workload = Workload(seq_len=8192, global_batch=128)
    request = Request(model="70b", gpus="4x8xH100", workload=workload, backend="accelerate", allow=("reduce_dtype",))
    assert not best(request).candidate.knobs.compile


def test_a_fixed_value_that_the_backend_does_not_have_is_refused_with_the_values_that_it_has(deck: Deck) -> None:
    request = Request(model="8b", gpus="8xH100", backend="torchtitan", fix={"optimizer_in_backward": True})
    refused = (
        r"^--fix optimizer_in_backward=true: torchtitan cannot run knobs.optimizer_in_backward = true; it takes false; .*backends"
    )
    with pytest.raises(InputError, match=refused):
        answer(request, deck=deck)


def test_fixed_values_that_a_back_end_refuses_together_raise_a_one_line_error(deck: Deck) -> None:
    asked = replace(BIG, gpus="8xH100", backend="native", fix={"float8": "rowwise", "offload": "streamed"})
    with pytest.raises(InputError, match=r"^--backend native: cannot run offload streamed, float8 rowwise: .*; choose another off"):
        answer(asked, deck=deck)


def test_options_resolve_to_values_that_the_back_end_supports(tmp_path: Path) -> None:
    """Without cards, so that no card mentions attention sinks."""
    (tmp_path / "mine.yaml").write_text("StrategyCard:\n  id: MY-001\n  module: cp\n  intent: Nothing\n", encoding="utf-8")
    deck_without_policies, fix = load_deck(tmp_path), {"cp": 4, "dp_shard": 2}
    asked = Request(model="gpt-oss-20b", gpus="8xH100", workload=Workload(seq_len=8192), backend="native", fix=fix)
    assert best(replace(asked, backend="any"), deck_without_policies).candidate.options.cp_attention == "sdpa"
    assert best(asked, deck_without_policies).candidate.options.cp_attention == "flex"
    with pytest.raises(InputError, match=r"attention_sinks true.*choose cp_attention flex"):
        answer(replace(asked, fix={**fix, "cp_rotate": "alltoall"}), deck=deck_without_policies)


@pytest.mark.parametrize("backend", ["megatron-lm", "nanotron", "pytorch"])
def test_a_back_end_without_windows_runs_sequences_that_a_window_holds(deck: Deck, backend: str) -> None:
    asked = Request(model="mistral-7b", gpus="8xH100", backend=backend, workload=Workload(seq_len=4096))
    assert best(asked).estimate.fits
    with pytest.raises(InputError, match=r"sliding_window 4,096, seq_len 8,192: .*choose a sequence that the window holds"):
        answer(replace(asked, workload=Workload(seq_len=8192)), deck=deck)


@pytest.mark.parametrize(
    ("backend", "model", "precision", "changed"),
    [
        ("axolotl", "8b", "bf16", ("reduce_dtype bf16",)),
        ("accelerate", "8b", "bf16", ("reduce_dtype bf16",)),
        ("accelerate", "1b", "fp32", ()),
        ("torchtitan", "qwen3-30b-a3b", "bf16", ("expert_balance bias",)),
        ("torchtitan", "8b", "bf16", ()),
        ("hf-trainer", "8b", "bf16", ()),
    ],
)
def test_convergence_changes_that_a_back_end_always_makes_are_planned_and_reported(
    deck: Deck, backend: str, model: str, precision: str, changed: tuple[str, ...]
) -> None:
    workload, fix = Workload(precision=precision), {"pp": 1, "cp": 1}
    found = answer_of(Request(model=model, gpus="2x8xH100", backend=backend, workload=workload, fix=fix), top=1)
    assert found.changes_convergence == changed
    assert all(backend in plan.backends for plan in found.plans)
    assert found.plans


def test_a_request_or_number_of_plans_of_another_type_raises_a_one_line_error() -> None:
    with pytest.raises(InputError, match=r"'8b': is of the type str.*Request\(model='8b', gpus='8xH100'\)"):
        api.plan("8b")  # type: ignore[arg-type]
    for top in (0, "5"):
        with pytest.raises(InputError, match=f"top {top!r}: is not a positive whole number of plans"):
            api.plan(NARROW, top=top)  # type: ignore[arg-type]
