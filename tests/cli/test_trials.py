"""``run`` and ``tune`` with real processes: measurements next to predictions."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import TrialState
from strategist.executors import processes
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import TrialRow
from strategist.profiles import history
from strategist.search.tuning_result import TuningResult

COMMAND = (sys.executable, "-m", "strategist.cli.main")
TINY = ["--model", "tiny", "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "4"]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("run") / "small.json"
    assert main(["plan", *TINY, "--backend", "native", "-o", str(file), "--json"]) == 0
    return file


def test_a_plan_without_a_backend_is_refused_before_any_rank_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", "--model", "32b", "--gpus", "8x24GB", "-o", str(plan), "--json"]) == 0
    capsys.readouterr()
    plan.write_text(plan.read_text(encoding="utf-8").replace('"kind": "cuda"', '"kind": "tpu"'), encoding="utf-8")
    assert main(["run", str(plan)]) == 2
    assert "native runs on cpu or cuda, not on tpu" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [plan]


def test_weights_of_another_model_are_refused_before_any_rank_starts(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 9, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 96, "vocab_size": 100}), encoding="utf-8")
    out = tmp_path / "out"
    assert main(["run", str(plan_file), "--weights", str(tmp_path), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert "are of a model with layers 9, and the plan's model has" in err
    assert f"plan with --model {shlex.quote(str(tmp_path))}" in err
    (tmp_path / "model.safetensors").touch()
    assert main(["run", str(plan_file), "--export-weights", str(tmp_path), "--steps", "4", "--out", str(out)]) == 2
    assert "holds weights already" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("broken", [{"recompute": "sometimes"}, {"micro_batch": 0}])
@pytest.mark.parametrize("question", [[], ["--why-not", "tp=2"]])
def test_an_illegal_plan_is_not_explained(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: dict[str, object], question: list[str]
) -> None:
    document = json.loads(plan_file.read_text(encoding="utf-8"))
    document["candidate"]["knobs"].update(broken)
    edited = tmp_path / "plan.json"
    edited.write_text(json.dumps(document), encoding="utf-8")
    capsys.readouterr()
    assert main(["explain", str(edited), *question]) == 2
    err = capsys.readouterr().err
    assert next(iter(broken)) in err
    assert err.count("\n") == 1


def test_an_illegal_plan_is_refused(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = codec.load(Plan, plan_file)
    candidate = plan.candidate
    broken = replace(plan, candidate=replace(candidate, knobs=replace(candidate.knobs, micro_batch=3)))
    codec.save(broken, tmp_path / "plan.json")
    capsys.readouterr()
    assert main(["run", str(tmp_path / "plan.json")]) == 2
    err = capsys.readouterr().err
    assert "was edited after it was planned" in err
    assert "must divide global_batch" in err


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_a_run_prints_measured_next_to_predicted_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_file = tmp_path / "small.json"
    assert main(["plan", *TINY, "--gpus", "1xcpu", "--backend", "native", "-o", str(plan_file), "--json"]) == 0
    capsys.readouterr()
    assert main(["run", str(plan_file), "--steps", "3"]) == 0
    text = capsys.readouterr().out
    measurement = codec.load(Measurement, plan_file.with_name("small-run") / "measurement.json")
    assert measurement.outcome is Outcome.OK
    assert measurement.plan_id == codec.load(Plan, plan_file).id
    assert measurement.steps_measured == 3
    for words in ("predicted measured ratio", "step time", "tokens/s", "MFU", "peak memory", "comm ratio", "tests the code"):
        assert words in " ".join(text.split())


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_a_failed_run_prints_the_reason(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = codec.load(Plan, plan_file)
    wide = replace(plan.model, vocab_size=4_000_000)
    codec.save(replace(plan, model=wide).identified(), tmp_path / "plan.json")
    capsys.readouterr()
    assert main(["run", str(tmp_path / "plan.json"), "--out", str(tmp_path / "out"), "--steps", "1"]) == 1
    text = capsys.readouterr().out
    assert "oom" in text
    assert "ran out of memory" in text
    assert "Evidence" in text


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.full
def test_a_tuning_resumes_and_reports_its_calibration(tmp_path: Path) -> None:
    study = tmp_path / "study"
    arguments = [*COMMAND, "tune", *TINY, "--study", str(study), "--confirm", "0", "--steps", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def tune(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*arguments, *more], capture_output=True, text=True, env=environment, check=False)

    first = tune("--trials", "1", "--json")
    assert first.returncode == 0, first.stderr
    result = codec.loads(TuningResult, first.stdout)
    assert len(result.trials) == 1
    second = tune("--trials", "2", "--explain")
    assert second.returncode == 0, second.stderr
    assert re.match(r"strategist: trial 2 ok: step [^ ]+ m?s \(predicted [^ ]+ m?s\), .*; 2 of 2 trials\n$", second.stderr)
    for words in ("Calibration", "before calibration", "left out of the fit", "Cards and the evidence", "The best plan"):
        assert words in second.stdout
    assert len(history.read(study / "history.jsonl").records) == 2
    assert main(["explain", str(study / "best-plan.json"), "--calibration", str(study / "calibration.json"), "--json"]) == 0
    other = tune("--trials", "3", "--seed", "1", "--precision", "fp32")
    assert other.returncode == 2
    assert "precision was bf16, is fp32" in other.stderr
    assert other.stderr.count("\n") == 1


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_a_terminated_tuning_releases_its_trial_and_leaves_no_process(tmp_path: Path) -> None:
    study = tmp_path / "study"
    command = [*COMMAND, "tune", *TINY, "--study", str(study), "--confirm", "0", "--trials", "1", "--steps", "100000"]
    tuner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    tag = f"{study.resolve()}."
    while not processes.tagged(tag):
        assert tuner.poll() is None
        time.sleep(0.05)
    tuner.send_signal(signal.SIGTERM)
    _, err = tuner.communicate()
    assert (tuner.returncode, err) == (130, "strategist: interrupted\n")
    assert processes.tagged(tag) == {}
    with Ledger.open(study) as ledger:
        assert [row.state for row in ledger.trials()] == [TrialState.QUEUED]


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.full
def test_a_killed_tuning_loses_and_repeats_no_trial(tmp_path: Path, server: str) -> None:
    study = tmp_path / "study"
    command = [*COMMAND, "tune", *TINY, "--study", str(study), "--confirm", "0", "--trials", "2", "--steps", "2"]
    command += ["--ledger", server] if server else []

    def trials() -> tuple[TrialRow, ...]:
        if not study.exists() or not {"study.sqlite", "ledger.url"} & {path.name for path in study.iterdir()}:
            return ()
        with Ledger.open(study, create=True) as ledger:
            return ledger.trials()

    for reached in (
        lambda: processes.tagged(f"{study.resolve()}."),  # ranks of the first trial are there
        lambda: any(row.outcome for row in trials()),  # the first trial has just been recorded
        lambda: any((study / "trials").glob("2-*/plan.json")),
    ):
        tuner = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not reached():
            assert tuner.poll() is None
            time.sleep(0.02)
        tuner.kill()
        tuner.wait()
        assert not [row for row in trials() if row.outcome is Outcome.LOST]
    before = [row for row in trials() if row.outcome]
    assert subprocess.run([*command, "--json"], check=False, capture_output=True).returncode == 0
    assert [row.outcome for row in trials()] == [Outcome.OK] * 2
    assert before
    assert [row for row in trials() if row.number in {row.number for row in before}] == before
    assert {path.name for path in (study / "trials").iterdir()} <= {
        f"{row.number}-{attempt.attempt}" for row in trials() for attempt in row.attempts
    }


def test_a_tuning_that_cannot_fit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--model", "8b", "--gpus", "2xcpu", "--trials", "1", "--study", str(tmp_path / "s")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("strategist: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
