"""Decision flows: reading, refusals with a place, and loading with cards."""

from pathlib import Path

import pytest

from strategist.cards.deck import load_deck
from strategist.cards.flow_reader import inspect_flow, read_flow
from strategist.errors import FileError
from strategist.expr.vocabulary import SETTINGS
from strategist.files import yaml_file
from strategist.paths import data_dir

FLOW = """\
protocol: 1
DecisionFlow:
  id: mine
  title: {en: Mine, zh: 我的}
  intent: Pipelines first.
  steps:
    - id: pipelines
      title: Pipelines
      decides: [pp, knobs.pp_schedule]
      rule: {text: Few stages., cards: [PP-001]}
      because: They are dear.
    - id: experts
      decides: [ep]
      when: model.is_moe
      rule: In words.
      because: They come last.
"""
CARD = "protocol: 1\nStrategyCard: {id: A-1, module: tp, intent: Why}\n"


def write(folder: Path, text: str, name: str = "flow.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_flow_is_read_completely() -> None:
    flow = read_flow(yaml_file.parse(FLOW, "x.yaml"))
    first, second = flow.steps
    assert (flow.id, flow.title.show("zh"), str(flow.intent)) == ("mine", "我的", "Pipelines first.")
    assert first.decides == ("layout.pp", "knobs.pp_schedule")
    assert (str(first.rule), first.cards, first.when) == ("Few stages.", ("PP-001",), None)
    assert second.when is not None
    assert (second.when.text, str(second.rule), second.cards) == ("model.is_moe", "In words.", ())


def test_a_step_is_skipped_only_if_its_condition_is_false() -> None:
    flow = read_flow(yaml_file.parse(FLOW, "x.yaml"))
    for facts, steps in (({"model.is_moe": False}, 1), ({"model.is_moe": True}, 2), ({}, 2)):
        assert len(flow.active_steps(facts)) == steps


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "words"),
    [
        ("intent: Pip", "intend: Pip", "FLOW001", 5, "did you mean intent?"),
        ("protocol: 1", "protocol: one", "FLOW001", 1, "protocol is a whole number such as 1"),
        ("      decides: [ep]\n", "", "FLOW001", 12, "field decides is missing"),
        ("rule: In words.", "rule: {card: [A]}", "FLOW001", 15, "did you mean cards?"),
        ("when: model.is_moe", "when: model.is_mo", "FLOW002", 14, "did you mean model.is_moe?"),
        ("when: model.is_moe", "when: model.is_moe >", "FLOW002", 14, "not an expression"),
        ("[ep]", "[epp]", "FLOW003", 13, "epp is not a setting; did you mean"),
        ("[ep]", "[ep, layout.pp]", "FLOW004", 13, "layout.pp is decided by step pipelines already"),
        ("id: experts", "id: pipelines", "FLOW004", 12, "step id pipelines appears twice"),
    ],
)
def test_each_fault_has_its_code_and_place(old: str, new: str, code: str, line: int, words: str) -> None:
    assert old in FLOW
    document = yaml_file.parse(FLOW.replace(old, new, 1), "x.yaml")
    _, findings = inspect_flow(document)
    assert [(finding.code, finding.line) for finding in findings] == [(code, line)]
    assert words in findings[0].message
    with pytest.raises(FileError, match=rf"^x\.yaml:{line}:\d+: "):
        read_flow(document)


def test_flows_load_with_cards_and_the_last_flow_is_used(tmp_path: Path) -> None:
    ours = write(write(tmp_path / "ours", FLOW), CARD, "a.yaml")
    mine = write(tmp_path / "mine", FLOW.replace("id: mine", "id: other"))
    assert load_deck(write(tmp_path / "none", CARD, "a.yaml")).flow is None
    deck = load_deck(ours, mine)
    assert [flow.id for flow in deck.flows] == ["mine", "other"]
    assert deck.flow is deck.flows[1]
    assert [card.id for card in deck.cards] == ["A-1"]
    assert deck.without("A-1").flows == deck.flows


def test_a_flow_with_an_equal_id_replaces_and_becomes_the_last(tmp_path: Path) -> None:
    ours = write(write(tmp_path / "ours", FLOW), FLOW.replace("id: mine", "id: other"), "other.yaml")
    mine = write(tmp_path / "mine", FLOW.replace("Pipelines first.", "Changed."))
    deck = load_deck(ours, mine)
    assert [flow.id for flow in deck.flows] == ["other", "mine"]
    assert deck.flow is not None
    assert str(deck.flow.intent) == "Changed."
    assert deck.replaced == {"mine": str(ours / "flow.yaml")}


def test_ids_of_cards_and_flows_are_unique_in_a_folder(tmp_path: Path) -> None:
    folder = write(write(tmp_path, FLOW), CARD.replace("A-1", "mine"), "card.yaml")
    with pytest.raises(FileError, match="id mine is taken by"):
        load_deck(folder)


def test_a_flow_changes_the_explanation_digest_only(tmp_path: Path) -> None:
    folder = write(write(tmp_path, FLOW), CARD, "a.yaml")
    before = load_deck(folder)
    write(tmp_path, FLOW.replace("[ep]", "[ep, etp]"))
    after = load_deck(folder)
    assert after.digest == before.digest
    assert after.explanation_digest != before.explanation_digest
    write(tmp_path, CARD.replace("Why", "Because"), "a.yaml")
    assert load_deck(folder).explanation_digest != after.explanation_digest


def test_the_shipped_flow_decides_every_setting_and_names_known_cards() -> None:
    deck = load_deck(data_dir("cards"))
    assert deck.flow is not None
    assert deck.flow.id == "training-layout"
    decided = [path for step in deck.flow.steps for path in step.decides]
    assert sorted(decided) == sorted(SETTINGS)
    assert {card for step in deck.flow.steps for card in step.cards} <= {card.id for card in deck.cards}
    place = {path: number for number, step in enumerate(deck.flow.steps) for path in step.decides}
    order = ("axis_order", "dp_shard", "tp", "pp", "cp", "recompute", "micro_batch")
    numbers = [next(number for path, number in place.items() if path.endswith(f".{name}")) for name in order]
    assert numbers == sorted(numbers)
