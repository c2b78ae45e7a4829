"""Our own plan files are checked like any other file: they import unchanged, and edits that break a rule are findings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning.plans import answer_of, best

from formats.plans import FEW, plans
from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.errors import FileError
from strategist.formats import native
from strategist.formats.catalog import recognise
from strategist.formats.completed_config import GivenValues, setup
from strategist.formats.config_entries import Entries
from strategist.formats.source import load, parse

NOTHING = GivenValues(workload={}, settings={})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    codec.save(best(Request(model="8b", gpus="8xH100")), path)
    return path


def edited(path: Path, *place: str, value: Any) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path.write_text(json.dumps(data, indent=2), encoding="utf-8")
    return path


def test_every_native_plan_survives_export_and_import() -> None:
    tried = plans("native", *FEW)
    assert len(tried) > 10
    for plan in tried:
        source = parse(native.write(plan, {}).files[0].text, "plan.json")
        assert recognise(source) is native.FORMAT
        made = setup(source, native.read(Entries(source)), NOTHING)
        assert not made.findings
        assert (made.candidate, made.situation.model, made.situation.cluster) == (plan.candidate, plan.model, plan.cluster)
        assert made.situation.request.workload == plan.workload


def test_an_imported_plan_has_its_planned_price(saved: Path) -> None:
    review = api.import_plan(saved, NOTHING)
    assert review.plan == replace(codec.load(Plan, saved), request=review.plan.request)
    assert not review.findings


def test_checking_an_answer_checks_its_best_plan(saved: Path) -> None:
    path = saved.with_name("answer.json")
    codec.save(answer_of(Request(model="8b", gpus="8xH100")), path)
    assert api.import_plan(path, NOTHING).plan.id == codec.load(Plan, saved).id


def test_a_check_lists_the_gain_of_changes(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(edited(saved, "candidate", "knobs", "recompute", value="full"))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "It fits" in printed
    assert "recompute = selective" in printed


def test_an_illegal_edit_is_an_error_at_its_line(saved: Path) -> None:
    review = api.check_config(edited(saved, "candidate", "layout", "tp", value=16), NOTHING)
    finding = next(item for item in review.findings if "kv_heads" in item.message)
    line = next(number for number, text in enumerate(saved.read_text(encoding="utf-8").splitlines(), 1) if '"tp": 16' in text)
    assert (finding.code, finding.line, review.plan) == ("FMT-004", line, None)


def test_given_values_override_the_plans(saved: Path) -> None:
    review = api.import_plan(saved, GivenValues(gpus="4xH100", workload={}, settings={"dp_shard": 4}))
    assert review.plan is not None
    assert review.plan.cluster.devices == 4
    assert [item.code for item in review.findings if item.code == "FMT-008"] == ["FMT-008", "FMT-008"]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("candidate", "knobs", "recomptue"), "full", "recomptue"),
        (("candidate", "layout", "tp"), "two", "tp"),
        (("version",), 99, "upgrade"),
    ],
)
def test_invalid_plans_are_refused(saved: Path, place: tuple[str, ...], value: Any, words: str) -> None:
    with pytest.raises(FileError, match=words):
        api.check_config(edited(saved, *place, value=value), NOTHING)


def test_an_answer_without_a_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    answer = api.plan(Request(model="405b", gpus="1x24GB"))
    codec.save(answer, path)
    with pytest.raises(FileError, match="holds no plan"):
        api.check_config(path, NOTHING)
    assert load(path).has("verdict")
