"""The local executor: one trial on this machine, with torchrun as its launcher."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError
from strategist.executors import processes
from strategist.executors.collect import clear, collect, log_tail
from strategist.executors.executor import OnEvent
from strategist.executors.judge import judge
from strategist.executors.require import require_supervision, require_torch
from strategist.executors.supervise import supervise
from strategist.units import MIB, show_bytes

RUNTIME = (sys.executable, "-m", "strategist_runtime")
RANK_START_BYTES = 400 * MIB
"""What a rank holds once torch is imported: about 300 MiB with torch 2.13 on CPU, and some room."""

KEPT = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "XDG_CACHE_HOME", "HF_HOME"}
KEPT_PREFIXES = ("LC_", "PYTHON", "CUDA", "NVIDIA_", "NCCL", "GLOO", "OMP", "MKL", "KMP", "TORCH", "TRITON", "CUBLAS")
"""All that a trial sees of the environment: tokens and passwords that lie about in it stay out of its logs."""


def torchrun(ranks: int) -> tuple[str, ...]:
    """The launcher, for commands of any kind. No restarts: a second attempt is a fresh launch with a store of its own."""
    return (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--max-restarts=0",
        f"--nproc-per-node={ranks}", "--no-python",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LocalExecutor:
    """Runs trials here, one process a rank. What a plan says about the environment overrides what is there.

    ``study`` marks the processes of one study, so that what a killed tuner left behind can be found. ``launcher`` gives the command
    that starts so many ranks of the command after it; ``program`` is run by each rank, with plan, folder and settings.
    """

    study: str = "study"
    launcher: Callable[[int], tuple[str, ...]] = torchrun
    program: tuple[str, ...] = RUNTIME

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs ``plan`` as a trial in ``folder``; see :class:`strategist.executors.executor.Executor`."""
        ranks = plan.candidate.layout.world_size
        self._preflight(plan)
        folder = _prepared(folder)
        codec.save(plan, folder / "plan.json")
        codec.save(settings, folder / "settings.json")
        if (shortage := _shortage(ranks)) is not None:
            measurement = _not_started(plan, shortage)
        else:
            ending = supervise(
                self.command(folder, ranks),
                folder=folder,
                environment={**trial_environment(os.environ), **environment(plan)},
                tag=processes.new_tag(self.study),
                ranks=ranks,
                settings=settings,
                on_event=on_event,
            )
            measurement = judge(plan, settings, ending, collect(folder, ranks), log_tail(folder, "launcher"))
        codec.save(measurement, folder / "measurement.json")
        return measurement

    def command(self, folder: Path, ranks: int) -> tuple[str, ...]:
        """The command of a trial: launcher, then for each rank a keeper, then the program."""
        keeper = (sys.executable, "-m", "strategist.executors.keeper", "rank", str(folder))
        files = (str(folder / "plan.json"), "--out", str(folder), "--settings", str(folder / "settings.json"))
        return (*self.launcher(ranks), *keeper, *self.program, *files)

    def sweep(self) -> int:
        """Ends the processes that earlier runs of this study left behind when they were killed; returns how many."""
        return processes.sweep(self.study)

    def _preflight(self, plan: Plan) -> None:
        """What would fail every trial is said before the first.

        Raises:
            InputError: no Linux, no torch, or fewer devices than the plan has ranks.
        """
        require_supervision()
        if self.program == RUNTIME:
            require_torch()
        ranks, kind = plan.candidate.layout.world_size, plan.cluster.device.kind
        if kind != "cpu" and (here := _devices()) < ranks:
            raise InputError(f"{ranks} ranks on {kind}", f"this machine shows {here} devices", "plan for what it has: --gpus local")


def trial_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What of ``ours`` a trial gets; with it, one thread per rank unless somebody said otherwise."""
    kept = {name: value for name, value in ours.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    return {"OMP_NUM_THREADS": "1", **kept, "PYTHONUNBUFFERED": "1"}


def _prepared(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder)
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error.strerror}; choose another folder") from None
    return folder.resolve()


def _shortage(ranks: int) -> str | None:
    """Why this machine cannot start so many ranks right now; None when it can."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    if free >= ranks * RANK_START_BYTES:
        return None
    return f"{ranks} ranks need {show_bytes(ranks * RANK_START_BYTES)} of memory to start, {show_bytes(free)} are free"


def _not_started(plan: Plan, message: str) -> Measurement:
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.INFRASTRUCTURE, evidence=Evidence(message=message), wall_seconds=0.0
    )


def _devices() -> int:
    """GPUs that a process here may use; 0 when there is no driver or it does not answer."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    count = sum(line.startswith("GPU ") for line in listed.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count if visible is None else min(count, len([item for item in visible.split(",") if item.strip()]))
