"""The verdict of an answer: which memory is too small, and what the plans offload."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from planning.plans import FEW, NARROW, answer_of
from strategist.cards.deck import Deck, load_deck
from strategist.contract.answer import Answer
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.planning.planner import answer
from strategist.units import GIB


def test_the_verdict_on_32b_states_correct_numbers(big: Answer) -> None:
    assert "does not fit the devices" in big.verdict
    assert "488.2 GiB" in big.verdict
    assert "16 bytes each" in big.verdict
    first = big.plans[0]
    assert first.candidate.knobs.offload == "streamed"
    weights, waiting = 2 / 16 * 488.2 * GIB, first.estimate.host_memory_bytes_per_node - (1 + 2 / 16) * 488.2 * GIB
    assert first.estimate.host_memory_bytes_per_node > 488.2 * GIB + weights  # all states, and the bf16 weights that are copied
    assert 0 < waiting < weights  # inputs of layers
    offloaded = next(plan for plan in big.plans if plan.candidate.knobs.offload == "all")
    assert first.estimate.tokens_per_second > 3 * offloaded.estimate.tokens_per_second
    assert first.estimate.fits


@pytest.mark.parametrize(
    ("model", "gpus", "words"),
    [
        ("llama3-405b", "8xH100", "Nothing fits.*A node has 2.0 TiB of host memory"),
        ("llama3-8b", "6x4090", "keeps 119.7 GiB, 16 bytes each, activations not counted; 6 x RTX4090 can hold 136.8 GiB"),
    ],
)
def test_the_verdict_states_which_memory_is_too_small(model: str, gpus: str, words: str) -> None:
    """Including the host memory that is assumed for a node, and activations on top of states that the devices could hold."""
    fix = FEW | {"micro_batch": 1, "recompute": "full"}
    assert re.search(words, answer_of(Request(model=model, gpus=gpus, workload=Workload(global_batch=48), fix=fix)).verdict)


def test_the_verdict_omits_host_memory_if_devices_hold_the_states(deck: Deck) -> None:
    long = Request(model="1b", gpus="1xH100", workload=Workload(seq_len=2**20, global_batch=1), fix={"recompute": "none"})
    found = answer(long, deck=deck)
    assert found.plans == ()
    assert "activations not counted" in found.verdict
    assert "host memory" not in found.verdict.partition("Nearest")[0]


def test_the_verdict_attributes_fixed_offload_to_the_request(deck: Deck) -> None:
    asked = Request(model="8b", gpus="8xH100", fix=FEW | {"offload": "all"})
    found = answer(asked, deck=deck)
    assert "as asked" in found.verdict
    assert not any("nothing offloaded" in alternative.title for alternative in found.alternatives)


def test_the_verdict_attributes_offload_to_the_memory_objective(deck: Deck) -> None:
    found = answer(Request(model="70b", gpus="2x8xH200", objective="memory", fix=FEW), deck=deck)
    assert found.plans[0].candidate.knobs.offload != "none"
    assert found.verdict.startswith("It fits. ")
    assert "for memory keeps state in host memory" in found.verdict
    assert not any("nothing offloaded" in alternative.title for alternative in found.alternatives)


def test_the_verdict_names_the_card_that_forbids_all_candidates(tmp_path: Path) -> None:
    card = "StrategyCard:\n  id: MY-001\n  module: tp\n  intent: A test\n  policies:\n"
    (tmp_path / "mine.yaml").write_text(card + "    - {id: p, forbid: {recompute: full}, because: Because.}\n", encoding="utf-8")
    found = answer(replace(NARROW, fix={**NARROW.fix, "recompute": "full"}), deck=load_deck(tmp_path))
    assert found.plans == ()
    assert "MY-001/p: Because. With --without MY-001 some are left." in found.verdict
