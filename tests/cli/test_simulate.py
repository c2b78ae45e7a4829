"""``strategist simulate``: ranks of clusters that this machine does not have."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.plan import Plan
from strategist.contract.simulation import Simulation, Verdict

PIPELINE = ["--fix", "pp=4", "--fix", "tp=2", "--fix", "dp_shard=128", "--fix", "pp_schedule=1f1b"]
REQUEST = ["plan", "--model", "tiny", "--gpus", "128x8xH100", "--global-batch", "2048", "--top", "1", *PIPELINE]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("simulate") / "plan.json"
    assert main([*REQUEST, "-o", str(file), "--json"]) == 0
    return file


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.full
def test_first_and_last_stage_of_1024_devices_are_simulated(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["simulate", str(plan_file), "--json"]) == 0
    shown = capsys.readouterr()
    found = codec.loads(Simulation, shown.out)
    assert [rank.stages for rank in found.ranks] == [(0,), (3,)]
    assert found.plan_id == codec.load(Plan, plan_file).id
    first, last = found.ranks
    assert last.memory["logits"] + last.memory["activations"] > 0
    assert "head" in last.modules
    assert "head" not in first.modules
    assert shown.err.count("rank ") == 2


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_a_plan_that_does_not_fit_is_reported(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = codec.load(Plan, plan_file)
    small = tmp_path / "small.json"
    candidate = plan.candidate
    knobs, options = replace(candidate.knobs, compile=False), replace(candidate.options, async_tp=False, fullgraph=False)
    eager = replace(candidate, knobs=knobs, options=options)  # the simulation of compiled layers is an upper bound
    codec.save(replace(plan, candidate=eager, estimate=replace(plan.estimate, capacity_bytes=1e6)), small)
    capsys.readouterr()
    assert main(["simulate", str(small), "--rank", "1023"]) == 1
    text = capsys.readouterr().out
    assert "Its tensors do not fit" in text
    assert "on rank 1023" in text
    assert text.startswith("Its tensors do not fit")
    assert {"Memory", "activations", "More:"} <= {line.split()[0] for line in text.splitlines() if line}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "1024"], "rank 1024: is none of the plan's 1024; choose 0 to 1023"),
        (["--rank", "-1"], "rank -1: is none of the plan's 1024"),
        (["--stage", "second"], "--stage second: the pipeline's ranks are 0 to 3; write first, last or numbers"),
        (["--stage", "4"], "--stage 4: the pipeline's ranks are 0 to 3"),
        (["--rank", "0", "--all-stages"], "not allowed with argument"),
    ],
)
def test_an_unknown_rank_or_stage_prints_one_error_line(
    plan_file: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["simulate", str(plan_file), *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_an_illegal_plan_is_refused(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(plan_file.read_text(encoding="utf-8"))
    document["candidate"]["layout"]["tp"] = 3
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document), encoding="utf-8")
    capsys.readouterr()
    assert main(["simulate", str(broken)]) == 2
    assert "plan again" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.full
def test_plans_that_do_not_fit_when_simulated_are_ranked_last(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["plan", "--model", "tiny", "--gpus", "16x8xH100", "--global-batch", "256", "--top", "2", "--fix", "compile=false"]
    assert main([*request, "--prove", "--json"]) == 0
    answer = codec.loads(Answer, capsys.readouterr().out)
    assert [proof.verdict for proof in answer.proofs] == [Verdict.FITS] * 2
    assert all(0 < (proof.peak_memory_bytes or 0) <= (proof.peak_reserved_bytes or 0) for proof in answer.proofs)
    first, second = answer.plans
    small = replace(first, estimate=replace(first.estimate, capacity_bytes=1e6))
    again = api.prove(replace(answer, plans=(small, second)))
    assert again.plans == (second, small)
    assert [proof.verdict for proof in again.proofs] == [Verdict.FITS, Verdict.TOO_LARGE]
    assert again.verdict.startswith(f"Simulated, plan {small.id}, predicted to be the best, comes later. ")
    none = api.prove(replace(answer, plans=(small,)))
    assert none.verdict.startswith("Simulated, none of the 1 plans shown fits; before that: ")


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.full
def test_a_plan_that_cannot_be_simulated_has_an_open_verdict_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["plan", "--model", "tiny", "--gpus", "4xcpu", "--top", "1", "--fix", "offload=streamed"]
    assert main([*request, "--prove"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Proof what tensors take at most when simulated" in text
    assert "open: offload streamed" in text


@pytest.mark.torch
@pytest.mark.timeout(280)
@pytest.mark.full
def test_the_example_of_published_layouts_shows_that_a_layout_fits() -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "llama3_405b_layouts.py"
    shown = subprocess.run([sys.executable, script, "FSDP2 x TP, no stages"], capture_output=True, text=True, check=True)
    heading, row = shown.stdout.splitlines()
    predicted, simulated, reserved, capacity = map(float, re.findall(r"\b\d+\.\d\b", row))
    assert heading.split()[-4:] == ["predicted", "simulated", "reserved", "of"]
    assert predicted == pytest.approx(simulated, rel=0.08)
    assert simulated < reserved < capacity
    assert "  fits  " in row
