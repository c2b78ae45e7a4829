"""Each check can fail, at its place, and the shipped deck passes all of them."""

from pathlib import Path

import pytest

from strategist.cards.deck import load_deck
from strategist.diagnostic import Level
from strategist.lint.checks import RULES
from strategist.lint.registry import CHECKS, check
from strategist.lint.run import lint
from strategist.paths import data_dir

GOOD = """\
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


def write(folder: Path, text: str, name: str = "card.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_card_has_no_findings(tmp_path: Path) -> None:
    assert lint([write(tmp_path, GOOD)]) == ()


def test_the_shipped_deck_has_no_findings() -> None:
    assert lint([data_dir("cards")]) == ()
    assert lint(load_deck(data_dir("cards"))) == ()


FAULTS = [
    ("CARD001", "id: X-001", "id: &x X-001", 2),
    ("CARD002", "title:", "titel:", 3),
    ("CARD003", "model.layers > 8", "model.layer > 8", 11),
    ("CARD004", "model.layers > 8", "model.layers > 8 s", 11),
    ("CARD005", "model.layers > 8", "model.layers >", 11),
    ("CARD006", "id: after", "id: law", 14),
    ("CARD007", "{recompute: none}\n      because", "{recompute: nothing}\n      because", 12),
    ("CARD008", "knobs.recompute}", "knobs.recomputation}", 8),
    ("CARD009", "      because: It is.\n", "", 10),
    ("CARD010", "  source_refs:\n    - {url: \"https://arxiv.org/abs/1604.06174\"}\n", "", 2),
    ("CARD010", "title: Title", "since: \"0.1\"", 2),
    ("CARD011", GOOD[GOOD.index("  cases:") :], "", 2),
    ("CARD012", "expect: forbidden", "expect: allowed", 22),
    ("CARD013", "model.layers > 8", "model.layers > 8 or layout.tp >= 1", 11),
    ("CARD014", "model.layers > 8", "observed.mfu > 0.2 or model.layers > 8", 11),
    ("CARD015", "  source_refs:", "  interactions: [X-002]\n  source_refs:", 19),
    ("CARD016", "forbid: {recompute: none}", "forbid: {recompute: none, tp: 1}", 10),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "old", "new", "line"), FAULTS, ids=[f"{fault[0]}-{number}" for number, fault in enumerate(FAULTS)]
)
def test_each_check_fires_at_its_place(tmp_path: Path, code: str, old: str, new: str, line: int) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    found = [finding for finding in lint([path]) if finding.code == code]
    assert [(finding.line, finding.path) for finding in found] == [(line, str(path))]


def test_every_registered_check_is_shown_to_fire() -> None:
    assert {fault[0] for fault in FAULTS} == set(CHECKS) == {rule.code for rule in RULES}


def test_a_stable_card_of_words_is_a_finding_and_a_preview_is_not(tmp_path: Path) -> None:
    words = "StrategyCard:\n  id: X-001\n  status: {}\n  title: a\n  module: tp\n  intent: a\n  policies: [do it well]\n"
    stable = lint([write(tmp_path, words.format("stable"))])
    assert any("text only" in finding.message for finding in stable)
    assert lint([write(tmp_path, words.format("preview"))]) == ()


def test_an_id_is_unique_in_a_folder_and_may_be_replaced_from_another(tmp_path: Path) -> None:
    write(tmp_path / "a", GOOD)
    write(tmp_path / "b", GOOD)
    assert lint([tmp_path / "a", tmp_path / "b"]) == ()
    write(tmp_path / "a", GOOD, "other.yaml")
    found = lint([tmp_path / "a"])
    assert [finding.code for finding in found] == ["CARD006"]
    assert "is taken by" in found[0].message


def test_paths_that_do_not_exist_are_findings(tmp_path: Path) -> None:
    (found,) = lint([tmp_path / "nothing.yaml"])
    assert (found.code, found.level) == ("CARD001", Level.ERROR)


def test_a_code_is_given_once() -> None:
    with pytest.raises(ValueError, match="CARD001 is taken"):
        check("CARD001", "anything")(lambda subject: iter(()))


def test_a_failing_case_says_what_the_card_said(tmp_path: Path) -> None:
    spoken = "expect: {reasons: [law, other]}"
    (found,) = lint([write(tmp_path, GOOD.replace("expect: allowed", spoken))])
    assert found.message == "case 2 fails: [] speak, not ['law', 'other']"
    proposed = GOOD.replace("{model.layers: 4}", "{observed.mfu: 0.1}").replace("expect: allowed", "expect: {proposes: {tp: 2}}")
    (found,) = lint([write(tmp_path, proposed)])
    assert found.message == "case 2 fails: {'knobs.recompute': 'full'} is proposed, not {'layout.tp': 2}"
