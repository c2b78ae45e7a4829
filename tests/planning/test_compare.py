"""Two plans side by side: what differs, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.comparison import Comparison
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload

ASKED = Request(model="8b", gpus="2x8xH100", workload=Workload(global_batch=64))


@pytest.fixture(scope="module")
def sharded() -> Plan:
    return api.plan(replace(ASKED, fix={"tp": 1, "pp": 1}), top=1).plans[0]


@pytest.fixture(scope="module")
def sliced() -> Plan:
    return api.plan(Request(model="8b", gpus="2x8xH100", fix={"tp": 2}), top=1).plans[0]


def test_a_plan_does_not_differ_from_itself(sharded: Plan) -> None:
    found = api.compare(sharded, sharded)
    assert found.situation == found.settings == found.cards == ()
    assert {figure.ratio for figure in found.figures} == {1.0}


def test_settings_that_change_nothing_in_a_plan_are_none_there(sharded: Plan, sliced: Plan) -> None:
    found = {item.name: (item.first, item.second) for item in api.compare(sharded, sliced).settings}
    assert found["layout.tp"] == (1, 2)
    assert found["knobs.sequence_parallel"] == (None, True)
    assert "knobs.pp_schedule" not in found


def test_parts_add_up_to_the_figures(sharded: Plan, sliced: Plan) -> None:
    found = api.compare(sharded, sliced)
    figures = {figure.name: figure for figure in found.figures}
    needed = [part.second or 0 for part in found.memory if part.name != "cache"]  # which the allocator gives back when needed
    assert sum(needed) == pytest.approx(figures["peak_memory_bytes"].second)
    assert sum(part.second or 0 for part in found.time) == pytest.approx(figures["step_seconds"].second)


def test_words_of_cards_that_only_one_plan_carries_are_told(sharded: Plan, sliced: Plan) -> None:
    only = {item.name: (item.first, item.second) for item in api.compare(sharded, sliced).cards}
    first, second = only["TP-003 wide-slices"]
    assert first is None
    assert "1024 columns" in str(second)


def test_another_question_is_said_to_be_one(sharded: Plan) -> None:
    other = api.plan(Request(model="8b", gpus="2x8xH100", workload=Workload(global_batch=128)), top=1).plans[0]
    [difference] = api.compare(sharded, other).situation
    assert (difference.name, difference.first, difference.second) == ("workload.global_batch", 64, 128)


def test_the_command_says_which_is_faster_and_its_json_comes_back(
    sharded: Plan, sliced: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, plan in zip(paths, (sharded, sliced), strict=True):
        codec.save(plan, path)
    assert main(["compare", *paths]) == 0
    text = " ".join(capsys.readouterr().out.split())
    ratio = sliced.estimate.tokens_per_second / sharded.estimate.tokens_per_second
    assert f"{sliced.id} trains at {ratio:.2f} times the tokens/s of {sharded.id} and takes" in text
    assert "TP communication" in text
    assert main(["compare", *paths, "--json"]) == 0
    printed = capsys.readouterr().out
    assert codec.loads(Comparison, printed) == api.compare(sharded, sliced)
    assert json.loads(printed)["type"] == "Comparison"


def test_what_is_no_plan_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
