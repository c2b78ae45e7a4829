"""Ranks of one machine meet over loopback, at a port that rank 0 writes into their folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.launch import ENVIRONMENT

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

PROGRAM = """
import sys
from pathlib import Path
import torch.distributed as dist
from strategist_runtime.rendezvous import join_process_group
join_process_group(Path(sys.argv[1]), "cpu", float(sys.argv[2]))
received = [None] * dist.get_world_size()
dist.all_gather_object(received, dist.get_rank())
print(received, flush=True)
dist.barrier()
"""


def rank(number: int, folder: Path, timeout_seconds: float, **variables: str) -> "subprocess.Popen[str]":
    world = {"RANK": f"{number}", "LOCAL_RANK": f"{number}", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **variables}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), f"{timeout_seconds}"], env={**ENVIRONMENT, **world}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.full
def test_ranks_meet_without_an_address_and_leave_no_file(tmp_path: Path) -> None:
    (tmp_path / "rank-0.port-0-0").write_text("1")  # left by an earlier attempt that died
    attempt = {"TORCHELASTIC_RUN_ID": "a/b", "TORCHELASTIC_RESTART_COUNT": "1"}
    ranks = [rank(number, tmp_path, 60.0, **attempt) for number in (1, 0)]
    outputs = [process.communicate() for process in ranks]
    assert [out for out, _ in outputs] == ["[0, 1]\n"] * 2, outputs
    assert os.listdir(tmp_path) == ["rank-0.port-0-0"]


@pytest.mark.full
def test_a_rank_gives_up_if_rank_0_does_not_appear(tmp_path: Path) -> None:
    alone = rank(1, tmp_path, 0.5)
    _, errors = alone.communicate()
    assert alone.returncode == 1
    assert "TimeoutError: timed out after 0.5 s: rank 0 has not written its address" in errors
