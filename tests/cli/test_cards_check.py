"""``strategist cards lint`` and ``cards explain``: forms, selection, corrections, and exit codes."""

import json
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.lint.checks.all import RULES

GOOD = "protocol: 1\nStrategyCard:\n  title: Why\n  status: preview\n  module: tp\n  intent: Why\n"
BAD = GOOD.replace("title", "titel").replace("protocol: 1\n", "# mine\n")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("bad.yaml")
    path.write_text(BAD, encoding="utf-8")
    return path


def test_lint_exits_with_1_only_on_errors(bad: Path, capsys: Captured) -> None:
    assert main(["cards", "lint", str(bad)]) == 1
    out = capsys.readouterr().out
    assert "bad.yaml:3:3: error CARD018 unknown field titel; did you mean title?; write the field" in out
    assert out.endswith("errors: 1, other findings: 1, 2 to correct with --fix\n")
    assert main(["cards", "lint", str(bad), "--ignore", "CARD018"]) == 0
    assert "CARD018" not in capsys.readouterr().out


def test_findings_are_printed_in_each_format(bad: Path, capsys: Captured) -> None:
    assert main(["cards", "lint", str(bad), "--json"]) == 1
    first = capsys.readouterr().out
    assert main(["cards", "lint", str(bad), "--format", "json"]) == 1
    assert capsys.readouterr().out == first
    assert [finding["code"] for finding in json.loads(first)] == ["CARD045", "CARD018"]
    assert main(["cards", "lint", str(bad), "--format", "sarif"]) == 1
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"
    assert main(["cards", "lint", str(bad), "--format", "github"]) == 1
    assert "::error file=bad.yaml,line=3,col=3,title=CARD018::" in capsys.readouterr().out
    assert main(["cards", "lint", str(bad), "--verbose"]) == 1
    assert "    3 |   titel: Why\n      |   ^\n" in capsys.readouterr().out
    assert main(["cards", "lint", str(bad), "--format", "xml"]) == 2
    assert "--format xml: is not known; choose one of text, json, sarif, github" in capsys.readouterr().err


def test_codes_are_selected_by_prefix(bad: Path, capsys: Captured) -> None:
    assert main(["cards", "lint", str(bad), "--select", "CARD045,FLOW", "--json"]) == 0
    assert [finding["code"] for finding in json.loads(capsys.readouterr().out)] == ["CARD045"]
    assert main(["cards", "lint", str(bad), "--select", "card", "--ignore", "CARD01", "--ignore", "FLOW", "--json"]) == 0
    assert [finding["code"] for finding in json.loads(capsys.readouterr().out)] == ["CARD045"]
    assert main(["cards", "lint", str(bad), "--select", "CRAD013"]) == 2
    assert "code CRAD013: is not a check of the linter; did you mean CARD013?" in capsys.readouterr().err


def test_diff_leaves_the_file_unchanged_and_fix_applies_the_diff(bad: Path, capsys: Captured) -> None:
    assert main(["cards", "lint", str(bad), "--diff"]) == 0
    shown = capsys.readouterr()
    assert "-  titel: Why\n+  title: Why\n" in shown.out
    assert "would correct bad.yaml: 2 places" in shown.err
    assert bad.read_text(encoding="utf-8") == BAD
    assert main(["cards", "lint", str(bad), "--fix"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no findings\n"
    assert "corrected bad.yaml: 2 places" in shown.err
    assert bad.read_text(encoding="utf-8") == "# mine\n" + GOOD
    assert main(["cards", "lint", str(bad), "--fix"]) == 0
    assert capsys.readouterr().err == ""


def test_only_selected_findings_are_fixed(bad: Path) -> None:
    assert main(["cards", "lint", str(bad), "--fix", "--ignore", "CARD018"]) == 0
    assert bad.read_text(encoding="utf-8") == "# mine\nprotocol: 1\n" + GOOD.removeprefix("protocol: 1\n").replace("title", "titel")


def test_fix_requires_file_names(capsys: Captured) -> None:
    assert main(["cards", "lint", "--fix"]) == 2
    assert "--fix: needs the files to correct" in capsys.readouterr().err


def test_cards_of_the_shipped_deck_are_known(bad: Path, capsys: Captured) -> None:
    bad.write_text(GOOD + "  interactions: [{card: FSDP-001, text: x}, {card: FSDP-01, text: x}]\n", encoding="utf-8")
    assert main(["cards", "lint", str(bad), "--select", "CARD015", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["message"].startswith("there is no card FSDP-01; did you mean FSDP-0")


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_symbols_are_resolved_and_examples_run_on_request(bad: Path, capsys: Captured) -> None:
    gone = "    - {symbol: torch.distributed.fsdp.fully_shard, parameter: reshard}\n    - {symbol: torch.nothing.like_it}\n"
    examples = "  example:\n    - {run: import torch}\n    - {run: assert False}\n"
    bad.write_text(f"{GOOD}  source_refs:\n{gone}{examples}", encoding="utf-8")
    assert main(["cards", "lint", str(bad), "--no-sources"]) == 0
    assert capsys.readouterr().out == "no findings\n"
    assert main(["cards", "lint", str(bad), "--run-examples", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(finding["code"], finding["line"]) for finding in found] == [("CARD042", 8), ("CARD042", 9), ("CARD044", 12)]


@pytest.mark.parametrize("code", ["CARD013", "card035", "FLOW005"])
def test_a_code_is_explained(code: str, capsys: Captured) -> None:
    assert main(["cards", "explain", code]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{code.upper()} (")
    assert "\nWhy: " in text
    assert main(["cards", "explain", code, "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["code"] == code.upper()
    assert page["what"] in text


def test_all_codes_are_listed(capsys: Captured) -> None:
    assert main(["cards", "explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [rule.code for rule in RULES]
    assert main(["cards", "explain", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(RULES)


def test_an_unknown_code_prints_one_error_line(capsys: Captured) -> None:
    assert main(["cards", "explain", "CARD13"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    message = "code CARD13: is not a check of the linter; did you mean CARD013? strategist cards explain lists all"
    assert shown.err == f"strategist: {message} (next: strategist cards explain CARD013)\n"
