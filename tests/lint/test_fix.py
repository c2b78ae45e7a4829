"""Fixes change only their own characters, remove the finding, and are idempotent."""

import stat
from pathlib import Path

import pytest

from strategist.cards.spelling import closest_word, edit_distance
from strategist.contract.diagnostic import Fix
from strategist.errors import FileError
from strategist.lint.checks.all import RULES
from strategist.lint.fix import applied, corrected, repairs, write
from strategist.lint.run import lint_text

CODES = frozenset(rule.code for rule in RULES)
CARD = """\
# About this card: keep me.
protocol: 1
StrategyCard:
  title: "Why"   # a remark
  status: preview

  module: recompute
  intent: {en: Why, zh: 为什么}
  control_points:
    - {name: recompute, path: knobs.recompute}
  observables:
    - name: peak
      metric: observed.peak_memory_bytes
  policies:
    - id: law
      when: >-
        model.layers > 8
        and knobs.recompute == "none"   # not a comment: folded text
      prefer: {recompute: 'full', micro_batch: 2}
      because: It is.
  cases:
    - given: {facts: {model.layers: 9}, candidate: {recompute: none}}
      expect: allowed
"""
CARD = CARD.replace("   # not a comment: folded text", "")
FAULTS = [
    ("CARD018", "  title:", "  titel:"),
    ("CARD018", "because:", "becuase:"),
    ("CARD002", "status: preview", "status: preveiw"),
    ("CARD002", "expect: allowed", "expect: alowed"),
    ("CARD003", "metric: observed.peak_memory_bytes", "metric: observed.peak_memory_byte"),
    ("CARD003", "model.layers > 8", "model.layer > 8"),
    ("CARD003", "{model.layers: 9}", "{model.layres: 9}"),
    ("CARD004", '== "none"', '== "nome"'),
    ("CARD007", "'full'", "'fulll'"),
    ("CARD007", "micro_batch:", "micro_bacth:"),
    ("CARD008", "path: knobs.recompute", "path: knobs.recompite"),
    ("CARD045", "protocol: 1\n", ""),
    ("CARD046", "  status: preview\n\n", ""),
]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(("code", "right", "wrong"), FAULTS, ids=[f"{fault[0]}-{number}" for number, fault in enumerate(FAULTS)])
def test_a_fix_changes_nothing_else(code: str, right: str, wrong: str, ends: str) -> None:
    assert CARD.count(right) == 1
    broken = CARD.replace(right, wrong).replace("\n", ends)
    assert code in {finding.code for finding in lint_text("card.yaml", broken)}
    after, count = corrected("card.yaml", broken, CODES)
    wanted = (
        CARD
        if code != "CARD046"
        else CARD.replace("  status: preview\n\n", "").replace("  module:", "  status: preview\n  module:")
    )
    assert after == wanted.replace("\n", ends)
    assert count == 1
    assert code not in {finding.code for finding in lint_text("card.yaml", after)}
    assert corrected("card.yaml", after, CODES) == (after, 0)


def test_a_valid_card_is_unchanged() -> None:
    assert lint_text("card.yaml", CARD) == ()
    assert corrected("card.yaml", CARD, CODES) == (CARD, 0)


def test_many_faults_are_fixed_in_rounds() -> None:
    broken = CARD
    for _, right, wrong in FAULTS[:-1]:
        broken = broken.replace(right, wrong)
    after, count = corrected("card.yaml", broken, CODES)
    assert after == CARD
    assert count == len(FAULTS) - 1


def test_a_name_misspelled_twice_is_fixed_twice() -> None:
    broken = CARD.replace("model.layers > 8", "model.layer > 8 and model.layer < 90")
    assert "model.layers > 8 and model.layers < 90" in corrected("card.yaml", broken, CODES)[0]


@pytest.mark.parametrize(
    "text",
    [
        CARD.replace("path: knobs.recompute", "path: knobs.rec"),  # nothing is near
        CARD.replace("  title:", "  xd:"),  # too short to match
        CARD.replace("because: It is.", "because: It is.\n      becuase: Again."),  # the correct field exists already
        CARD.replace("'full', micro", "'full', recompte: none, micro"),  # the setting exists already
        CARD.replace("prefer: {recompute: 'full'", 'prefer: {recompute: "f\\x75lll"'),  # written with an escape
    ],
)
def test_uncertain_faults_are_not_fixed(text: str) -> None:
    assert lint_text("card.yaml", text)
    assert corrected("card.yaml", text, CODES) == (text, 0)


def test_only_selected_codes_are_fixed() -> None:
    broken = CARD.replace("  title:", "  titel:").replace("model.layers > 8", "model.layer > 8")
    after, count = corrected("card.yaml", broken, {"CARD003"})
    assert (after, count) == (CARD.replace("  title:", "  titel:"), 1)


ENTRY = "    - name: peak\n      metric: observed.peak_memory_bytes\n"


@pytest.mark.parametrize("between", ["", "\n", "    - {name: mfu, metric: observed.mfu}\n"])
def test_a_duplicate_entry_is_removed(between: str) -> None:
    once = CARD.replace(ENTRY, ENTRY + between)
    twice = CARD.replace(ENTRY, ENTRY + between + ENTRY)
    assert corrected("card.yaml", twice, CODES) == (once, 1)


def test_the_last_entry_of_a_file_is_removed_with_and_without_a_last_newline() -> None:
    case = CARD[CARD.index("    - given:") :]
    assert corrected("card.yaml", CARD + case, CODES) == (CARD, 1)
    assert corrected("card.yaml", CARD + case.rstrip("\n"), CODES) == (CARD, 1)


def test_a_duplicate_policy_is_removed() -> None:
    policy = CARD[CARD.index("    - id: law") : CARD.index("  cases:")]
    assert corrected("card.yaml", CARD.replace(policy, policy + policy), CODES) == (CARD, 1)


def test_a_duplicate_entry_with_a_comment_or_within_a_line_is_kept() -> None:
    for entry in (ENTRY.replace("peak\n", "peak  # mine\n"), ENTRY + "      # mine\n"):
        text = CARD.replace(ENTRY, ENTRY + entry)
        assert corrected("card.yaml", text, CODES) == (text, 0)
    text = CARD.replace(ENTRY, "    [{name: a, metric: observed.mfu}, {name: a, metric: observed.mfu}]\n")
    assert "CARD047" in {finding.code for finding in lint_text("card.yaml", text)}
    assert corrected("card.yaml", text, CODES) == (text, 0)


def test_fixed_files_keep_byte_order_mark_and_mode(tmp_path: Path) -> None:
    broken, good = tmp_path / "a.yaml", tmp_path / "good.yaml"
    broken.write_bytes(b"\xef\xbb\xbf" + CARD.replace("  title:", "  titel:").encode())
    broken.chmod(0o640)
    good.write_text(CARD, encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    (repair,) = repairs([tmp_path], CODES)
    assert (repair.path, repair.fixes) == (str(broken), 1)
    write(repair)
    assert broken.read_bytes() == b"\xef\xbb\xbf" + CARD.encode()
    assert stat.S_IMODE(broken.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "good.yaml", "latin.yaml"]
    assert list(repairs([tmp_path], CODES)) == []


def test_a_fixed_symbolic_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.yaml", tmp_path / "a.yaml"
    real.write_text(CARD.replace("  title:", "  titel:"), encoding="utf-8")
    link.symlink_to(real)
    for repair in repairs([link], CODES):
        write(repair)
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == CARD


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        list(repairs([tmp_path / "none.yaml"], CODES))


def test_a_file_removed_before_the_fix_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(CARD.replace("  title:", "  titel:"), encoding="utf-8")
    (repair,) = repairs([path], CODES)
    path.unlink()
    with pytest.raises(FileError, match="cannot be written"):
        write(repair)
    assert list(tmp_path.iterdir()) == []


def test_fixes_are_applied_by_position() -> None:
    fixes = [Fix(path="", start=4, end=5, replacement="E"), Fix(path="", start=0, end=1, replacement="AA")]
    assert applied("abcde", fixes) == "AAbcdE"


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [("", "abc", 3), ("titel", "title", 1), ("layer", "layers", 1), ("kitten", "sitting", 3), ("ca", "abc", 3)],
)
def test_the_edit_distance_is_symmetric(left: str, right: str, count: int) -> None:
    assert edit_distance(left, right) == edit_distance(right, left) == count


def test_a_correction_needs_exactly_one_near_word() -> None:
    assert closest_word("titel", ("title", "id")) == "title"
    assert closest_word("layer", ("layers", "layered")) == ""  # two are near
    assert closest_word("tq", ("tp", "text")) == ""  # too short
    assert closest_word("recomputation", ("recompute",)) == ""
