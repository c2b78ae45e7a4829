"""Comparison of two plans: exactly the differences."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planning.plans import best
from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.comparison import Comparison
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload

REQUEST = Request(model="8b", gpus="2x8xH100", workload=Workload(global_batch=64))


@pytest.fixture(scope="module")
def sharded() -> Plan:
    return best(replace(REQUEST, fix={"tp": 1, "pp": 1}))


@pytest.fixture(scope="module")
def tensor_parallel() -> Plan:
    return best(Request(model="8b", gpus="2x8xH100", fix={"tp": 2}))


def test_a_plan_compared_with_itself_has_no_differences(sharded: Plan) -> None:
    found = api.compare(sharded, sharded)
    assert found.situation == found.settings == found.cards == ()
    assert {figure.ratio for figure in found.figures} == {1.0}


def test_settings_without_effect_in_a_plan_are_shown_as_absent(sharded: Plan, tensor_parallel: Plan) -> None:
    found = {item.name: (item.first, item.second) for item in api.compare(sharded, tensor_parallel).settings}
    assert found["layout.tp"] == (1, 2)
    assert found["knobs.sequence_parallel"] == (None, True)
    assert "knobs.pp_schedule" not in found


def test_parts_sum_to_the_compared_figures(sharded: Plan, tensor_parallel: Plan) -> None:
    found = api.compare(sharded, tensor_parallel)
    figures = {figure.name: figure for figure in found.figures}
    needed = [
        part.second or 0 for part in found.memory if part.name != "cache"
    ]  # the allocator frees its cache when memory is needed
    assert sum(needed) == pytest.approx(figures["peak_memory_bytes"].second)
    assert sum(part.second or 0 for part in found.time) == pytest.approx(figures["step_seconds"].second)


def test_card_reasons_of_one_plan_only_are_listed(sharded: Plan, tensor_parallel: Plan) -> None:
    only = {item.name: (item.first, item.second) for item in api.compare(sharded, tensor_parallel).cards}
    first, second = only["TP-003 wide-slices"]
    assert first is None
    assert "1024 columns" in str(second)


def test_a_different_workload_is_listed_as_a_difference(sharded: Plan) -> None:
    other = best(Request(model="8b", gpus="2x8xH100", workload=Workload(global_batch=128)))
    [difference] = api.compare(sharded, other).situation
    assert (difference.name, difference.first, difference.second) == ("workload.global_batch", 64, 128)


def test_the_compare_command_states_the_faster_plan_and_prints_json(
    sharded: Plan, tensor_parallel: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, plan in zip(paths, (sharded, tensor_parallel), strict=True):
        codec.save(plan, path)
    assert main(["compare", *paths]) == 0
    text = " ".join(capsys.readouterr().out.split())
    ratio = tensor_parallel.estimate.tokens_per_second / sharded.estimate.tokens_per_second
    assert f"{tensor_parallel.id} trains at {ratio:.2f} times the tokens/s of {sharded.id} and takes" in text
    assert "TP communication" in text
    assert main(["compare", *paths, "--json"]) == 0
    printed = capsys.readouterr().out
    assert codec.loads(Comparison, printed) == api.compare(sharded, tensor_parallel)
    assert json.loads(printed)["type"] == "Comparison"


def test_an_invalid_plan_file_is_a_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
