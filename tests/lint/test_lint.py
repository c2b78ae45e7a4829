"""Running all checks on decks, folders and files, with other decks as context; the shipped deck has no findings."""

from pathlib import Path

import pytest

from strategist.cards.deck import Deck, load_deck
from strategist.contract.diagnostic import Level
from strategist.lint.checks.all import RULES
from strategist.lint.registry import check
from strategist.lint.run import cards_in, lint, lint_text
from strategist.paths import data_dir

GOOD = """\
protocol: 1
StrategyCard:
  id: X-001
  title: Title
  status: stable
  module: tp
  intent: Why
  control_points:
    - {name: recompute, path: knobs.recompute}
  policies:
    - id: law
      when: model.layers > 8
      forbid: {recompute: none}
      because: It is.
    - id: after
      phase: observe
      when: observed.mfu < 0.2
      try: {recompute: full}
      because: It was slow.
  source_refs:
    - {url: "https://arxiv.org/abs/1604.06174"}
  cases:
    - given: {facts: {model.layers: 9}, candidate: {recompute: none}}
      expect: forbidden
    - given: {facts: {model.layers: 4}, candidate: {recompute: none}}
      expect: allowed
"""


def write(folder: Path, text: str, name: str = "X-001-card.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def codes(*paths: Path) -> list[str]:
    return [finding.code for finding in lint(paths)]


def test_a_good_card_has_no_findings(tmp_path: Path) -> None:
    assert lint([write(tmp_path, GOOD)]) == ()


def test_the_shipped_deck_has_no_findings() -> None:
    assert [str(finding) for finding in lint([data_dir("cards")])] == []
    assert [str(finding) for finding in lint(load_deck(data_dir("cards")))] == []


def test_a_card_of_free_text_has_findings_of_its_missing_parts(tmp_path: Path) -> None:
    words = (
        "protocol: 1\nStrategyCard:\n  status: {}\n  title: a\n  module: tp\n  intent: a\n"
        "  preconditions: [Memory is short.]\n  control_points: [{{name: recompute, effect: Less memory}}]\n"
        "  policies: [do it well]\n  risks: [It is slow.]\n  source_refs: [A book.]\n  example: [recompute(layer)]\n"
    )
    found = lint([write(tmp_path, words.format("preview"), "a.yaml")])
    assert {(finding.code, finding.level) for finding in found} == {("CARD025", Level.INFO), ("CARD028", Level.INFO)}
    assert [finding.line for finding in found] == [7, 8, 9, 10, 11, 12]
    stable = lint([write(tmp_path, words.format("stable"), "a.yaml")])
    assert {"CARD010", "CARD011", "CARD025", "CARD028"} == {finding.code for finding in stable}
    assert all(finding.level is Level.WARNING for finding in stable if finding.code == "CARD025")


def test_an_id_is_unique_in_a_folder_and_can_be_replaced_by_another_folder(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", GOOD), write(tmp_path / "b", GOOD)
    (found,) = lint([tmp_path / "a", tmp_path / "b"])
    assert (found.code, found.level, found.path, found.message) == ("CARD036", Level.INFO, str(second), f"X-001 replaces {first}")
    write(tmp_path / "a", GOOD, "X-001.yaml")
    (found,) = lint([tmp_path / "a"])
    assert found.code == "CARD006"
    assert "is taken by" in found.message


def test_context_cards_are_known_and_not_checked(tmp_path: Path) -> None:
    shipped = load_deck(data_dir("cards"))
    text = GOOD.replace("  source_refs:", "  interactions: [{card: FSDP-001, text: x}]\n  source_refs:")
    alone = lint([write(tmp_path, text)])
    beside = lint([tmp_path], base_deck=shipped)
    assert [finding.code for finding in alone] == ["CARD015"]
    assert [finding.code for finding in beside] == ["CARD040"]  # FSDP-001 does not name this card
    write(tmp_path, GOOD.replace("X-001", "FSDP-001"), "FSDP-001-mine.yaml")
    (found,) = [finding for finding in lint([tmp_path], base_deck=shipped) if finding.code == "CARD036"]
    assert "fsdp2" in found.message
    card = shipped.card("FSDP-001")
    assert not [finding for finding in lint([card.document.path], base_deck=shipped) if finding.code == "CARD036"]


def test_a_contradiction_with_a_context_card_is_found(tmp_path: Path) -> None:
    other = write(tmp_path / "context", GOOD.replace("X-001", "A-001"), "A-001.yaml")
    mine = write(tmp_path / "mine", GOOD.replace("forbid: {recompute: none}", "require: {recompute: none}"))
    (found,) = [finding for finding in lint([mine], base_deck=load_deck(other.parent)) if finding.code == "CARD035"]
    assert found.message.startswith(
        "A-001/law forbids knobs.recompute = none and X-001/law requires knobs.recompute = none; both act"
    )


def test_an_invalid_card_has_no_contradictions(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, GOOD.replace("X-001", "X-002").replace("model.layers > 8", "model.layer > 8"), "X-002.yaml")
    assert codes(tmp_path) == ["CARD003"]


def test_files_in_any_order_give_the_same_findings(tmp_path: Path) -> None:
    one = write(tmp_path, GOOD)
    two = write(
        tmp_path, GOOD.replace("X-001", "X-002").replace("forbid: {recompute: none}", "require: {recompute: none}"), "X-002.yaml"
    )
    forth, back = ({(found.code, found.path, found.line) for found in lint(paths)} for paths in ([one, two], [two, one]))
    assert ("CARD035", str(two), 13) in forth
    assert forth == back


def test_paths_that_do_not_exist_are_findings(tmp_path: Path) -> None:
    (found,) = lint([tmp_path / "nothing.yaml"])
    assert (found.code, found.level) == ("CARD001", Level.ERROR)
    assert found.do


def test_a_text_is_checked_alone_and_invalid_cards_are_read_partly(tmp_path: Path) -> None:
    bad = GOOD.replace("model.layers > 8", "model.layer > 8")
    assert [(finding.code, finding.path) for finding in lint_text("X-001.yaml", bad)] == [("CARD003", "X-001.yaml")]
    assert [finding.code for finding in lint_text("X-001.yaml", "a: [")] == ["CARD001"]
    write(tmp_path, bad)
    assert [card.id for card in cards_in([tmp_path])] == ["X-001"]


def test_an_empty_deck_has_no_findings() -> None:
    assert lint(Deck(())) == ()


def test_a_failed_case_shows_the_cards_result(tmp_path: Path) -> None:
    expected = "expect: {reasons: [law, other]}"
    (found,) = lint([write(tmp_path, GOOD.replace("expect: allowed", expected))])
    assert found.message == "case 2 fails: [] act, not ['law', 'other']"
    proposed = GOOD.replace("{model.layers: 4}", "{observed.mfu: 0.1}").replace("expect: allowed", "expect: {proposes: {tp: 2}}")
    (found,) = lint([write(tmp_path, proposed)])
    assert found.message == "case 2 fails: {'knobs.recompute': 'full'} is proposed, not {'layout.tp': 2}"


def test_a_case_can_set_options_and_the_axis_order(tmp_path: Path) -> None:
    text = GOOD.replace("path: knobs.recompute", "path: options.pp_split").replace("{recompute: none}", "{pp_split: even}")
    assert "CARD012" not in codes(write(tmp_path, text.replace("{recompute: full}", "{pp_split: weighted}")))
    order = GOOD.replace("path: knobs.recompute", "path: layout.axis_order").replace(
        "{recompute: none}", "{axis_order: pp.dp_replicate.dp_shard.cp.tp}"
    )
    assert "CARD012" not in codes(write(tmp_path, order.replace("try: {recompute: full}", "warn: true")))


def test_a_check_needs_a_unique_code_and_a_complete_page() -> None:
    with pytest.raises(ValueError, match="the docstring of X001 needs Why"):
        check("X001", Level.INFO, "anything")(lambda subject: iter(()))
    with pytest.raises(ValueError, match="CARD001 is taken"):
        check("CARD001", Level.INFO, "anything")(lambda subject: iter(()))


def test_every_check_has_a_complete_page() -> None:
    assert len(RULES) >= 50
    for rule in RULES:
        assert rule.law.endswith("."), rule.code
        assert rule.page.what.endswith("."), rule.code
        assert rule.page.why.endswith("."), rule.code
        assert "\n" not in rule.page.do, rule.code
        assert not rule.page.do.endswith("."), rule.code
        assert rule.page.bad != rule.page.good, rule.code
