"""Simulates ranks of a plan, each in a process of its own, which becomes that rank."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.simulation import SimulatedRank
from strategist.errors import InputError
from strategist.executors.local import trial_environment
from strategist.executors.require import require_torch

OnRank = Callable[[SimulatedRank], None]

TIMEOUT_SECONDS = 1800.0


def simulate_ranks(
    plan: Plan, ranks: Sequence[int], *, whole: bool = False, on_rank: OnRank | None = None
) -> tuple[SimulatedRank, ...]:
    """What each rank shows, in their order; as many at a time as there are cores.

    Raises:
        InputError: torch is missing, or a simulation did not end well.
    """
    require_torch()
    with tempfile.TemporaryDirectory(prefix="strategist-simulate-") as name:
        folder = Path(name)
        codec.save(plan, folder / "plan.json")
        with ThreadPoolExecutor(max_workers=min(len(ranks), os.cpu_count() or 1)) as pool:
            running = [pool.submit(_simulate, folder, rank, whole=whole) for rank in ranks]
            try:
                return tuple(_told(one.result(), on_rank) for one in running)
            finally:
                for one in running:
                    one.cancel()


def _told(found: SimulatedRank, on_rank: OnRank | None) -> SimulatedRank:
    if on_rank is not None:
        on_rank(found)
    return found


def _simulate(folder: Path, rank: int, *, whole: bool) -> SimulatedRank:
    out = folder / f"rank-{rank}.json"
    command = [sys.executable, "-m", "strategist_runtime.simulate", str(folder / "plan.json"), "--rank", str(rank)]
    command += ["--out", str(out), *(["--whole"] if whole else [])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False,
            env=trial_environment(os.environ),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(f"rank {rank}", f"took over {TIMEOUT_SECONDS:g} s to simulate", "choose fewer micro-batches") from None
    if done.returncode == 0:
        return codec.load(SimulatedRank, out)
    said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    raise InputError(f"rank {rank}", f"cannot be simulated: {said[0]}", "run it with strategist run")
