"""The shipped deck: complete, bilingual, with resolvable sources, and no card without an effect."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strategist.cards.card import Card, SourceRef, Status, Text
from strategist.cards.deck import load_deck
from strategist.contract.knobs import CHOICES, Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.torch_symbol import ReferenceOutcome
from strategist.executors.torch_symbols import look_up, sources
from strategist.expr.columns import row_of, table
from strategist.lint.cases import case_row, failures
from strategist.paths import data_dir
from strategist.rules.observe_policies import observed_proposals
from strategist.rules.policy_evaluation import judge, preferences, reasons

DECK = load_deck(data_dir("cards"))
MODULES = {
    "device_mesh", "fsdp2", "ddp", "pp", "tp", "cp", "ep", "recompute", "precision", "compile", "optimizer", "offload", "batch",
    "checkpoint", "collectives", "nccl", "elastic", "selection",
}  # fmt: skip


def test_the_deck_covers_every_module() -> None:
    assert {card.module for card in DECK.cards} == MODULES


SECTIONS = ("control_points", "observables", "policies", "source_refs", "example", "cases")


def test_cards_are_stable_complete_and_in_their_modules_folder() -> None:
    def lacking(card: Card) -> Iterator[str]:
        path = Path(card.document.path)
        if card.status is not Status.STABLE:
            yield "the card is not stable"
        if path.parent.name != card.module:
            yield "the file is outside the folder of its module"
        if not re.fullmatch(rf"{card.id}-[a-z0-9-]+", path.stem):
            yield "its file has another name"
        yield from (f"the card has no {section}" for section in SECTIONS if not getattr(card, section))
        if not all(policy.because for policy in card.policies):
            yield "a policy has no reason"
        if not any(ref.url for ref in card.source_refs):
            yield "no source has an address"
        if not any(ref.symbol for ref in card.source_refs):
            yield "no source is a symbol"

    assert [(card.id, fault) for card in DECK.cards for fault in lacking(card)] == []


def texts() -> Iterator[tuple[str, Text]]:
    """Every text of the deck that an answer can show, with its place."""
    for card in DECK.cards:
        yield f"{card.id} title", card.title
        yield f"{card.id} intent", card.intent
        yield from ((f"{card.id} precondition {number}", item.text) for number, item in enumerate(card.preconditions, 1))
        yield from ((f"{card.id} {point.name}", point.effect) for point in card.control_points if point.effect)
        yield from ((f"{card.id} {policy.id}", policy.because) for policy in card.policies)
        yield from ((f"{card.id} {risk.id}", risk.text) for risk in card.risks)
    for flow in DECK.flows:
        yield f"{flow.id} title", flow.title
        yield f"{flow.id} intent", flow.intent
        for step in flow.steps:
            text_of = {"title": step.title, "rule": step.rule, "because": step.because}
            yield from ((f"{flow.id} {step.id} {name}", text) for name, text in text_of.items() if text)


def test_texts_in_answers_are_in_both_languages() -> None:
    """An English and a Chinese text with equal figures and names."""

    def faulty(text: Text) -> bool:
        chinese = [bool(re.search("[\u4e00-\u9fff]", words)) for words in (text.en, text.zh)]
        return not text.en or chinese != [False, True] or numbers_and_names(text.en) != numbers_and_names(text.zh)

    text_of = list(texts())
    assert len(text_of) > len(DECK.cards)
    assert [(place, text) for place, text in text_of if faulty(text)] == []


REMOVED = re.compile(
    r"\b(?:communication shows|of the step waited|to hide under|on (?:its|their) way|holds? \w+ (?:\w+ )?up|sharers?|dear|who|"
    r"no say|beside what|meetings?|half again|(?:has|had) nothing beside|talks? (?:least|most))\b",
    re.IGNORECASE,
)
"""Phrases that the field does not use; texts have "exposed", "overlap", "expensive to recompute" and "free memory" instead."""


def test_texts_use_the_words_of_the_field() -> None:
    assert [(place, text.en) for place, text in texts() if REMOVED.search(text.en)] == []


def numbers_and_names(words: str) -> set[str]:
    """The numbers in a text, and the names of settings and functions."""
    return set(re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z]+(?:_[A-Za-z0-9]+)+", words))


def test_every_case_passes() -> None:
    assert [(card.id, failed) for card in DECK.cards for case in card.cases for failed in failures(card, case)] == []


def test_cases_of_each_card_show_an_effect_and_no_effect() -> None:
    def has_effect(case: Any) -> bool:
        return case.verdict == "forbidden" or bool(case.reasons) or bool(case.proposes)

    assert [card.id for card in DECK.cards if {has_effect(case) for case in card.cases} != {True, False}] == []


def test_removing_a_card_changes_a_verdict_of_its_cases() -> None:
    """On the requests of its own cases, evaluated by the whole deck."""

    def idle(card: Card) -> bool:
        without = DECK.without(card.id)
        return all(verdict(DECK, case) == verdict(without, case) for case in card.cases)

    assert [card.id for card in DECK.cards if idle(card)] == []


def verdict(deck: Any, case: Any) -> tuple[Any, ...]:
    row = case_row(case)
    alternatives = [row | {f"knobs.{knob}": value} for knob, values in CHOICES.items() for value in values]
    candidates = table([row, *alternatives])
    judgement = judge(deck, case.facts, candidates)
    return (
        judgement.allowed.tolist(),
        [(drop.card, drop.policy) for drop in judgement.dropped],
        preferences(deck, case.facts, candidates).tolist(),
        reasons(deck, case.facts, row),
        observed_proposals(deck, case.facts, row),
    )


def test_examples_are_valid_python() -> None:
    for card in DECK.cards:
        for number, example in enumerate(card.example, 1):
            ast.parse(example.run, filename=f"{card.id}, example {number}")


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_torch_symbols_of_sources_exist() -> None:
    references = {(found.symbol, found.parameter): found for found in look_up(sources(DECK.cards)).references}

    def exists(ref: SourceRef) -> bool:
        found = references[ref.symbol, ref.parameter]
        lines = ref.lines and found.first_line and found.last_line
        exists = found.outcome is ReferenceOutcome.FOUND or (found.outcome is ReferenceOutcome.UNKNOWN and found.first_line)
        return exists and not (lines and (found.first_line > ref.lines[1] or found.last_line < ref.lines[0]))

    assert [(card.id, ref) for card in DECK.cards for ref in card.source_refs if ref.symbol and not exists(ref)] == []


def test_interactions_name_cards_of_the_deck() -> None:
    ids = {card.id for card in DECK.cards}
    assert {interaction.card for card in DECK.cards for interaction in card.interactions} <= ids


@pytest.mark.parametrize("offload", ["none", "streamed"])
def test_a_large_model_on_small_devices_keeps_candidates(offload: str) -> None:
    """32 B parameters on 8 x 24 GB: laws permit the settings of published runs."""
    facts = {
        "model.layers": 64, "model.hidden_size": 5120, "model.heads": 40, "model.kv_heads": 8, "model.vocab_size": 152064,
        "model.ffn_size": 27648, "model.parameters": 32.8e9, "model.parameter_bytes": 65.5e9, "model.state_bytes": 525e9,
        "model.is_moe": False, "model.experts": 0, "workload.seq_len": 2048, "workload.global_batch": 128,
        "workload.precision": "bf16", "workload.train": "full", "device.kind": "cuda", "device.memory_bytes": 24 * 2**30,
        "device.usable_memory_bytes": 22.5 * 2**30, "cluster.nodes": 1, "cluster.gpus_per_node": 8, "cluster.devices": 8,
        "cluster.intra_node_bytes_per_second": 2.5e9, "cluster.inter_node_bytes_per_second": 1e9,
        "cluster.host_memory_bytes": 800 * 2**30, "cluster.host_bytes_per_second": 12e9,
    }  # fmt: skip
    layout = Layout(dp_shard=8)
    rows = [row_of(Candidate(layout=layout, knobs=Knobs(offload=offload, recompute=how)), 16) for how in CHOICES["recompute"]]
    assert np.count_nonzero(judge(DECK, facts, table(rows)).allowed) >= 2
