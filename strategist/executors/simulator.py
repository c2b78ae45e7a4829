"""Simulates ranks of a plan; each rank runs in its own process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.progress import counted
from strategist.contract.simulation import Proof, SimulatedRank, Simulation, Verdict
from strategist.errors import InputError
from strategist.executors.local import trial_environment
from strategist.executors.requirements import require_torch

OnRank = Callable[[SimulatedRank], None]

TIMEOUT_SECONDS = 1800.0
REFUSED = 2
RUN = "run it with strategist run"


def prove(plan: Plan, on_rank: OnRank | None = None) -> Proof:
    """Whether the plan fits, by simulation; the verdict is open, with the reason, if it cannot be simulated."""
    try:
        return simulate(plan, on_rank=on_rank).proof
    except InputError as error:
        return Proof(verdict=Verdict.OPEN, why=str(error))


def simulate(
    plan: Plan, ranks: Sequence[int] = (), *, whole: bool = False, model_code: str = "", on_rank: OnRank | None = None
) -> Simulation:
    """Simulates a step of some ranks of a plan; by default the first rank of the first and of the last pipeline stage.

    ``model_code`` is MODULE:FUNCTION, a function that makes a model of the user.

    Raises:
        InputError: the plan has no such rank, torch is missing, or a simulation failed.
    """
    layout = plan.candidate.layout
    chosen = tuple(dict.fromkeys(ranks or map(layout.first_rank, (0, layout.pp - 1))))
    for rank in chosen:
        if not 0 <= rank < layout.world_size:
            raise InputError(f"rank {rank}", f"is none of the plan's {layout.world_size}", f"choose 0 to {layout.world_size - 1}")
    return Simulation(
        plan_id=plan.id,
        capacity_bytes=plan.estimate.capacity_bytes,
        predicted=None if model_code else plan.estimate.memory,
        ranks=_simulated(plan, chosen, whole, model_code, on_rank),
    )


def _simulated(plan: Plan, ranks: Sequence[int], whole: bool, model_code: str, on_rank: OnRank | None) -> tuple[SimulatedRank, ...]:
    """The ranks in the given order, simulated in parallel: at most one per core at a time."""
    require_torch()
    with tempfile.TemporaryDirectory(prefix="strategist-simulate-") as name:
        folder = Path(name)
        codec.save(plan, folder / "plan.json")
        with ThreadPoolExecutor(max_workers=min(len(ranks), os.cpu_count() or 1)) as pool:
            running = [pool.submit(_simulate, folder, rank, whole, model_code) for rank in ranks]
            try:
                return tuple(_reported(future.result(), on_rank) for future in counted(running, "ranks"))
            finally:
                for future in running:
                    future.cancel()


def _reported(found: SimulatedRank, on_rank: OnRank | None) -> SimulatedRank:
    if on_rank is not None:
        on_rank(found)
    return found


def _simulate(folder: Path, rank: int, whole: bool, model_code: str) -> SimulatedRank:
    output = folder / f"rank-{rank}.json"
    command = [sys.executable, "-m", "strategist_runtime.simulate", str(folder / "plan.json"), "--rank", str(rank)]
    command += ["--out", str(output), *(["--whole"] if whole else []), "--model-code", model_code]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False,
            env={**trial_environment(os.environ), "TMPDIR": str(folder)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(f"rank {rank}", f"took over {TIMEOUT_SECONDS:g} s to simulate", "choose fewer micro-batches") from None
    if process.returncode == 0:
        return codec.load(SimulatedRank, output, any_size=True)
    (error_text,) = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
    if process.returncode == REFUSED:
        raise InputError.parsed(error_text, RUN)
    raise InputError(f"rank {rank}", f"cannot be simulated: {error_text}", RUN)
