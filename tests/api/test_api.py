"""The typed use-cases as a Python library."""

from pathlib import Path

import pytest

import strategist
from strategist import api
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.shipped_calibrations import factors
from strategist.errors import FileError

TINY = Request(model="tiny", gpus="4xcpu", workload=Workload(seq_len=128, global_batch=16), backend="native")


def test_the_package_exports_the_use_cases() -> None:
    assert strategist.plan is api.plan
    assert strategist.run is api.run
    assert strategist.tune is api.tune
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = strategist.nothing


def test_top_sets_the_number_of_plans() -> None:
    plans = api.plan(TINY, top=3).plans
    assert len(plans) == 3
    assert len({plan.id for plan in plans}) == 3


def test_a_plan_has_the_digests_of_deck_and_calibration() -> None:
    plan = api.plan(TINY, top=1).plans[0]
    digests = plan.digests
    assert digests.deck == api.load_cards().digest
    assert digests.calibration == factors(None, plan.cluster).digest


def test_replacing_a_card_changes_the_plan(tmp_path: Path) -> None:
    request = Request(model="32b", gpus="8x24GB")
    replaced = tmp_path / "own.yaml"
    replaced.write_text("StrategyCard:\n  id: TP-001\n  module: tp\n  intent: Nothing.\n")
    with_card = api.plan(request, top=1)
    without = api.plan(request, cards=[tmp_path], top=1)
    assert {item.card for item in with_card.dropped} - {item.card for item in without.dropped} == {"TP-001"}
    assert with_card.plans[0].digests.deck != without.plans[0].digests.deck
    assert "TP-001" not in {reason.card for reason in without.plans[0].reasons}


def test_calibrations_load_from_a_versioned_file(tmp_path: Path) -> None:
    assert api.load_calibration(None) is None
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(FileError, match="version is missing"):
        api.load_calibration(tmp_path / "calibration.json")


def test_lint_takes_files_and_folders(tmp_path: Path) -> None:
    assert not [finding for finding in api.lint() if finding.level == "error"]
    (tmp_path / "bad.yaml").write_text("nothing")
    assert [finding.path for finding in api.lint([tmp_path])] == [str(tmp_path / "bad.yaml")]
