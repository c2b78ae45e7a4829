"""Resolved value of an option: laws, then defaults, then the most preferences, then the first."""

import pytest

from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.contract.knobs import KnobValue
from strategist.files import yaml_file
from strategist.rules.resolve_options import resolve

FACTS = {"layout.dp_replicate": 3, "options.pin_memory": True}
CHECKPOINTS = ("sync", "async", "async_pinned")


def deck(*policies: str) -> Deck:
    text = "StrategyCard:\n  id: A-1\n  module: ddp\n  intent: a\n  policies:\n"
    return Deck((read_card(yaml_file.parse(text + "".join(f"    - {{id: p{i}, {p}}}\n" for i, p in enumerate(policies)))),))


@pytest.mark.parametrize(
    ("policies", "value"),
    [
        (["warn: true"], "sync"),
        (["set: {checkpoint: async}"], "async"),
        (["set: {checkpoint: async}, when: layout.dp_replicate > 3"], "sync"),
        (["set: {checkpoint: async}, when: cluster.nodes > 1"], "sync"),
        (["set: {checkpoint: async}", "forbid: {checkpoint: async}"], "sync"),
        (["forbid: {checkpoint: sync}"], "async"),
        (["require: {checkpoint: async_pinned, pin_memory: true}"], "async_pinned"),
        (["set: {checkpoint: [async, async_pinned]}", "prefer: {checkpoint: async_pinned}"], "async_pinned"),
        (["prefer: {checkpoint: sync}", "prefer: {checkpoint: async}", "prefer: {checkpoint: async}"], "async"),
        (["forbid: {checkpoint: [sync, async, async_pinned]}"], "sync"),
    ],
)  # fmt: skip
def test_options_follow_laws_defaults_preferences_and_the_first_value(policies: list[str], value: KnobValue) -> None:
    assert resolve(deck(*policies), FACTS, "options.checkpoint", CHECKPOINTS) == value


@pytest.mark.parametrize(
    ("policy", "value"),
    [
        ("set: {bucket_cap_mb: 100}", 100),
        ("prefer: {bucket_cap_mb: 4 * layout.dp_replicate}", 12),
        ("set: {bucket_cap_mb: layout.dp_replicate / 2}", 25),
        ("set: {bucket_cap_mb: layout.dp_replicate - 3}", 25),
        ("set: {bucket_cap_mb: cluster.nodes}", 25),
        ("forbid: {bucket_cap_mb: 100}", 25),
    ],
)
def test_an_option_can_be_a_literal_or_computed_whole_number(policy: str, value: KnobValue) -> None:
    assert resolve(deck(policy), FACTS, "options.bucket_cap_mb", (25,)) == value
