"""``strategist shadow``: one rank of a large cluster on this machine; ``tune --shadow`` searches with such runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.search.tuning_result import TuningResult

MANY = ["--model", "tiny", "--gpus", "64xcpu", "--seq-len", "64", "--global-batch", "64", "--precision", "fp32"]
FIXED = ["--fix", "dp_shard=64", "--fix", "reshard_after_forward=true", "--fix", "compile=false"]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shadow") / "plan.json"
    assert main(["plan", *MANY, *FIXED, "--backend", "native", "-o", str(file), "--json"]) == 0
    return file


@pytest.mark.torch
@pytest.mark.timeout(200)
@pytest.mark.full
def test_one_of_64_ranks_is_measured_on_this_machine(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["shadow", str(plan_file), "--rank", "63", "--steps", "2"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Rank 63 of 64, alone, ran to its end" in text
    assert "Shadow of rank 63 of 64: memory and computing are measured on one process on this CPU" in text
    measurement = codec.load(Measurement, plan_file.with_name("plan-shadow") / "measurement.json")
    assert measurement.kind is Kind.SHADOW
    assert measurement.time is not None
    predicted = codec.load(Plan, plan_file).estimate.time
    assert measurement.time["dp_communication"] == predicted.dp_communication
    times = text.split("Time of a step")[1].split("Collectives")[0]
    assert times.count("measured") >= 3
    assert times.count("the model") == 1


def test_an_unknown_rank_is_refused(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shadow", str(plan_file), "--rank", "64", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "strategist: rank 64: is none of the plan's 64; choose 0 to 63\n"
    assert not (tmp_path / "out").exists()


def test_a_missing_device_kind_is_refused(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = codec.load(Plan, plan_file)
    file = tmp_path / "plan.json"
    codec.save(replace(plan, cluster=replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda"))).identified(), file)
    assert main(["shadow", str(file)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "computes on a cuda device, and this machine shows none; simulate it" in err
    assert sorted(tmp_path.iterdir()) == [file]


@pytest.mark.torch
@pytest.mark.timeout(280)
@pytest.mark.full
def test_a_large_cluster_is_tuned_with_shadow_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = str(tmp_path / "study")
    asked = ["tune", *MANY, *FIXED, "--trials", "2", "--steps", "1", "--confirm", "0", "--study", study]
    assert main([*asked, "--shadow", "--json"]) == 0
    result = codec.loads(TuningResult, capsys.readouterr().out)
    measured = [trial.measurement for trial in result.trials if trial.measurement]
    assert [(each.kind, each.outcome) for each in measured] == [(Kind.SHADOW, Outcome.OK)] * 2
    assert all(trial.plan.cluster.devices == 64 for trial in result.trials)
    before, after = result.calibration_before, result.calibration_after
    assert after.trials == 2
    assert after.compute != before.compute
    assert after.communication == pytest.approx(before.communication, rel=0.02)
    assert result.evidence == ()  # a shadow's step is half modelled, so it is no evidence for cards
    assert main(asked) == 2
    assert "holds shadow trials, these are real; use a new study folder" in capsys.readouterr().err
