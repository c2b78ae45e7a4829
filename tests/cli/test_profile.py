"""``strategist profile`` with real ranks writes a cluster file that plans can use."""

import json
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.machine import BUS_FACTORS, MachineRecord

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.mark.full
def test_two_ranks_measure_a_cluster_file_that_plans_can_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "here.yaml"
    assert main(["profile", "--cpu", "--ranks", "2", "-o", str(file)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "bus bandwidth in GB/s, as nccl-tests defines it; gloo on one host" in text
    assert f"--gpus {file}" in text.replace(" ", "").replace("--gpus", "--gpus ")
    record = codec.load(MachineRecord, tmp_path / "here.json")
    assert (record.device_kind, record.ranks) == ("cpu", 2)
    assert {sample.collective for sample in record.collectives} == set(BUS_FACTORS)
    assert {sample.dtype for sample in record.matmuls} == {"fp32", "bf16"}
    assert all(sample.seconds > 0 for sample in (*record.matmuls, *record.attention, *record.collectives))
    plan = ["plan", "--model", "tiny", "--gpus", str(file), "--seq-len", "64", "--global-batch", "4", "--json"]
    assert main(plan) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["cluster"]["device"]["matmul"]["origin"].startswith("measured: by 2 ranks")
    assert answer["plans"]


def test_a_wrong_output_file_is_refused_before_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--cpu", "-o", str(tmp_path / "here.txt")]) == 2
    assert "ends in .yaml" in capsys.readouterr().err


def test_ranks_beyond_the_machines_memory_are_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--cpu", "--ranks", "99999", "-o", str(tmp_path / "here.yaml")]) == 2
    assert "99999 ranks on cpu: 99999 ranks need" in capsys.readouterr().err
