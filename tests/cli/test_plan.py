"""``strategist plan``: one screen, the parts of the full answer by name, and the plan that is taken."""

from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.answer import SECTION_NAMES, Answer
from strategist.contract.plan import Plan
from strategist.report.answer import SECTIONS

TINY = ["plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16"]
TOO_LARGE = ["plan", "--model", "70b", "--gpus", "1x24GB", "--fix", "offload=none"]

Captured = pytest.CaptureFixture[str]


def test_any_plan_of_an_answer_can_be_saved_and_described(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "second.json"
    assert main([*TINY, "--plan", "2", "-o", str(file), "--json"]) == 0
    second = codec.loads(Answer, capsys.readouterr().out).plans[1]
    assert codec.load(Plan, file) == second
    main([*TINY, "--plan", "2", "--show", "settings"])
    assert f"id {second.id}" in capsys.readouterr().out
    assert main([*TINY, "--plan", "9"]) == 2
    assert "--plan 9: the answer has 5 plans; take 1 to 5, or ask for more with --top" in capsys.readouterr().err


def test_parts_of_the_answer_are_shown_by_name(capsys: Captured) -> None:
    assert tuple(SECTIONS) == SECTION_NAMES
    main([*TINY, "--show", "memory,time"])
    text = capsys.readouterr().out
    assert "Memory of the fullest device" in text
    assert "Time of a step" in text
    assert "Cards that shaped it" not in text
    assert main([*TINY, "--show", "memroy"]) == 2
    assert "--show memroy: is not known; did you mean memory?" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"], ["--explain"]])
def test_it_exits_with_1_where_nothing_fits(more: list[str], capsys: Captured) -> None:
    assert main([*TOO_LARGE, *more]) == 1
    assert "Nothing fits" in capsys.readouterr().out


def test_settings_may_stand_with_commas_between_them(capsys: Captured) -> None:
    main([*TINY, "--fix", "tp=2,recompute=full", "--json"])
    candidate = codec.loads(Answer, capsys.readouterr().out).plans[0].candidate
    assert (candidate.layout.tp, candidate.knobs.recompute) == (2, "full")
