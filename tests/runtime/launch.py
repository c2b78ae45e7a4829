"""Starts ranks as users do, with torchrun, or one of them alone."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import RankRecord, TrialSettings
from strategist.contract.plan import Plan

TESTS = Path(__file__).resolve().parent.parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONPATH": str(TESTS)}
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
NO_COMPILER = {"PATH": ""}
"""With which torch.compile uses aot_eager: the same graphs in a tenth of the time."""

DEATHS = {"SIGSEGV": 128 + signal.SIGSEGV, "SIGABRT": 128 + signal.SIGABRT}
"""How torch's own threads end a process; with torchrun the names stand in its report, with ``forked`` the codes are its own."""

SHORT = TrialSettings(steps=3, warmup_steps=1)


def torchrun(ranks: int, arguments: Sequence[str], timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a module on ``ranks`` processes to its end; ``variables`` are set in their environment."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
    command += ["--nproc-per-node", str(ranks), "-m", *arguments]
    return _until_torch_lives(command, timeout, variables)


def forked(ranks: int, arguments: Sequence[str], timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same for a rank program of the tests, whose ranks import torch once for all."""
    return _until_torch_lives([sys.executable, "-m", "runtime.forked", str(ranks), *arguments], timeout, variables)


def _until_torch_lives(command: Sequence[str], timeout: float, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Once more, and not in silence, where torch's own code ended a rank; whatever else goes wrong is the test's to judge."""
    for first in (True, False):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env={**ENVIRONMENT, **variables}, check=False
        )
        sign = next((sign for sign in DEATHS if sign in done.stderr or done.returncode == DEATHS[sign]), None)
        if not first or done.returncode == 0 or sign is None:
            break
        warnings.warn(f"{' '.join(command[3:])} ended by {sign}, started once more:\n{done.stderr[-3000:]}", stacklevel=3)
    return done


def trial_arguments(plan: Plan, folder: Path, settings: TrialSettings = SHORT) -> list[str]:
    """Writes the files of a trial; the module that runs it with its arguments."""
    codec.save(plan, folder / "plan.json")
    codec.save(settings, folder / "settings.json")
    return ["strategist_runtime", str(folder / "plan.json"), "--out", str(folder), "--settings", str(folder / "settings.json")]


def start_alone(arguments: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    """Starts rank 0 of 1 without torchrun, so that its own exit code is seen."""
    environment = {**ENVIRONMENT, **ALONE, **variables}
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run_alone(plan: Plan, folder: Path, settings: TrialSettings = SHORT, **variables: str) -> tuple[int, RankRecord, str]:
    """Exit code, record and error output of a trial of one rank."""
    process = start_alone(trial_arguments(plan, folder, settings), **variables)
    _, errors = process.communicate(timeout=100)
    return process.returncode, codec.load(RankRecord, folder / "rank-0.json"), errors


def records(folder: Path) -> list[RankRecord]:
    """All records, by rank."""
    found = [codec.load(RankRecord, path) for path in folder.glob("rank-*.json")]
    return sorted(found, key=lambda record: record.rank)
