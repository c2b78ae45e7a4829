"""The machine profile that two ranks measure."""

from pathlib import Path

import pytest
from strategist_runtime.machine.profile import main

from strategist.contract import codec
from strategist.contract.machine import BUS_FACTORS, MachineRecord

from ..launch import forked

pytestmark = pytest.mark.torch


def test_the_profile_has_each_kind_of_work_and_each_collective(tmp_path: Path) -> None:
    done = forked(2, ["runtime.profile_rank", "--out", str(tmp_path), "--device", "cpu"])
    assert done.returncode == 0, done.stderr
    record = codec.load(MachineRecord, tmp_path / "machine.json")
    assert (record.device_kind, record.ranks) == ("cpu", 2)
    assert {sample.collective for sample in record.collectives} == set(BUS_FACTORS)
    assert {(sample.dtype, sample.rows, sample.inner, sample.columns) for sample in record.matmuls} == {
        (dtype, rows, side, columns)
        for dtype in ("fp32", "bf16")
        for rows, side, columns in ((32, 32, 32), (8, 32, 128), (64, 64, 64), (16, 64, 256))
    }
    rates = (record.streaming_bytes_per_second, record.host_bytes_per_second, record.host_optimizer_bytes_per_second)
    assert all(sample.seconds > 0 for sample in (*record.matmuls, *record.attention, *record.collectives))
    assert min(*rates, record.elementwise_bytes_per_second, record.layer_seconds) > 0


def test_a_rank_needs_a_folder_and_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "the following arguments are required: --out, --device" in capsys.readouterr().err
