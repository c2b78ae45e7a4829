"""Local executor: runs one trial, by default on this machine with torchrun as its launcher."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError
from strategist.executors import processes
from strategist.executors.engine import TORCHRUN, Engine
from strategist.executors.executor import OnEvent
from strategist.executors.host_agents import TOKEN
from strategist.executors.host_memory import available_bytes, floor_bytes
from strategist.executors.preflight import require_memory, require_ready, require_room
from strategist.executors.requirements import require_supervision, require_torch
from strategist.executors.trial_metrics import figures
from strategist.executors.trial_outcome import Measure, judge
from strategist.executors.trial_process import TrialCommand, supervise
from strategist.executors.trial_records import clear, collect, log_tail
from strategist.frozen import frozen
from strategist.profiles.local_machine import nvidia_smi
from strategist.units import MIB, show_bytes

RUNTIME = (sys.executable, "-m", "strategist_runtime")
RANK_START_BYTES = 400 * MIB
"""Host memory of a rank after importing torch: about 300 MiB with torch 2.13 on CPU, plus a margin."""

KEPT_VARIABLES = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "HF_HOME",
}
KEPT_PREFIXES = (
    "LC_", "PYTHON", "SLURM", "CUDA", "NVIDIA_", "NCCL", "GLOO", "OMP", "MKL", "KMP", "TORCH", "PYTORCH", "TRITON", "CUBLAS",
)  # fmt: skip
"""With ``KEPT_VARIABLES``, the only environment variables that a trial gets, so that tokens and passwords stay out of its logs."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")


OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Makes each attempt of the ranks create its own store: the remains of the last attempt in a shared store stop most second
attempts, and torchrun's store listens on every interface.
"""

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
"""Without it, gloo would listen on the interface of the host name."""


@frozen
class LocalExecutor:
    """Runs trials, one process per rank. Environment variables of a plan override existing ones.

    study: marks the processes of one study, so that those of a killed tuner can be found.
    engine: starts the ranks.
    program: command of each rank; plan, folder and settings follow it.
    lost: numbers of devices of this machine that are not used any more.
    """

    study: str = "study"
    engine: Engine = TORCHRUN
    program: tuple[str, ...] = RUNTIME
    lost: frozenset[int] = frozenset()

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs ``plan`` as a trial in ``folder``; see :class:`strategist.executors.executor.Executor`."""
        self.preflight(plan)
        folder = prepared(folder, plan, settings)
        ranks, restarts = plan.candidate.layout.world_size, 0 if settings.elastic else allowed_restarts(plan, settings)
        command = TrialCommand(
            words=self.command(plan, folder, restarts),
            environment=self._environment(plan, restarts) | (wandb_environment(os.environ) if settings.wandb else {}),
            tag=processes.new_tag(self.study), ranks=ranks, restarts=restarts, engine=self.engine,
        )  # fmt: skip
        measurement = run_trial(plan, folder, settings, on_event, command, starts=ranks)
        codec.save(measurement, folder / "measurement.json")
        return measurement

    def _environment(self, plan: Plan, restarts: int) -> dict[str, str]:
        """Environment of the launcher and its ranks; the plan's variables override existing ones."""
        elsewhere = self.engine.elsewhere
        kept = trial_environment(os.environ, 1 if elsewhere else threads(plan))
        variables = {**({} if elsewhere else LOOPBACK), **launcher_environment(self.engine), **kept}
        return {**variables, **environment(plan), **self._remaining_devices(), **(OWN_STORE if restarts or not elsewhere else {})}

    def command(self, plan: Plan, folder: Path, restarts: int = 0) -> tuple[str, ...]:
        """The command of a trial: the launcher, then for each rank a process supervisor and the program."""
        return (*self.engine.launcher(plan, folder, restarts), *supervised_rank(folder, self.program))

    def without(self, ranks: Collection[int]) -> "LocalExecutor":
        """This executor without the devices of lost ranks; rank n uses the n-th remaining device."""
        remaining = [device for device in range(devices_here()) if device not in self.lost]
        return replace(self, lost=self.lost | {remaining[rank] for rank in ranks if rank < len(remaining)})

    def _remaining_devices(self) -> dict[str, str]:
        """CUDA_VISIBLE_DEVICES without the lost devices."""
        if not self.lost:
            return {}
        shown = _visible() or [str(device) for device in range(_most_devices())]
        return {"CUDA_VISIBLE_DEVICES": ",".join(name for device, name in enumerate(shown) if device not in self.lost)}

    def preflight(self, plan: Plan) -> None:
        """Raises an error for anything that would fail every trial.

        Raises:
            InputError: no Linux, no torch, fewer devices than ranks, or an error of the doctor.
        """
        require_supervision()
        if self.program == RUNTIME:
            require_torch()
        ranks, kind = plan.candidate.layout.world_size, plan.cluster.device.kind
        self.engine.launcher(plan, Path())
        here = None if self.engine.elsewhere or kind == "cpu" else devices_here() - len(self.lost)
        if here is not None and here < plan.cluster.gpus_for(ranks):
            do = "simulate it (strategist simulate), or plan for what is here: --gpus local"
            raise InputError(f"{ranks} ranks on {kind}", f"this machine shows {here} devices", do)
        if not self.engine.elsewhere:
            require_memory(ranks, RANK_START_BYTES)
            require_ready(kind, own_runtime=self.program == RUNTIME)


def run_trial(
    plan: Plan,
    folder: Path,
    settings: TrialSettings,
    on_event: OnEvent | None,
    command: TrialCommand,
    *,
    starts: int,
    measure: Measure = figures,
) -> Measurement:
    """Runs the command of a trial in its prepared folder, and returns the measurement from the files that its ranks wrote.

    Args:
        starts: number of processes that start here. Nothing is started if the machine lacks memory for them.
        measure: computes the figures of the measurement from the records of the ranks.
    """
    if not command.engine.elsewhere and (missing := shortage(starts)) is not None:
        return not_started(plan, missing)
    ending = supervise(command, folder, settings, on_event)
    return judge(plan, settings, ending, collect(folder, command.ranks), log_tail(folder, "launcher"), measure)


def supervised_rank(folder: Path, program: Sequence[str]) -> tuple[str, ...]:
    """The command of a rank: a process supervisor, then the program with plan, folder and settings."""
    supervisor = (sys.executable, "-m", "strategist.executors.process_supervisor", "rank", str(folder))
    return (*supervisor, *program, str(folder / "plan.json"), "--out", str(folder), "--settings", str(folder / "settings.json"))


def launcher_environment(engine: Engine) -> dict[str, str]:
    """Environment variables that the engine's launcher needs."""
    return {name: value for name, value in os.environ.items() if name.startswith(engine.passes)}


def threads(plan: Plan) -> int:
    """Threads of a rank: 1 on a CPU, where each rank has a core; on a GPU machine, its share of all cores, which update
    offloaded states.
    """
    local_ranks = min(plan.candidate.layout.world_size, plan.cluster.gpus_per_node)
    return 1 if plan.cluster.device.kind == "cpu" else max(1, len(os.sched_getaffinity(0)) // local_ranks)


def trial_environment(variables: Mapping[str, str], threads: int = 1) -> dict[str, str]:
    """The variables of ``variables`` that a trial gets, with this number of OpenMP threads per rank unless set otherwise."""
    kept = {
        name: value
        for name, value in variables.items()
        if name in KEPT_VARIABLES or (name.startswith(KEPT_PREFIXES) and name != TOKEN)
    }
    return {"OMP_NUM_THREADS": str(threads), **kept, "PYTHONUNBUFFERED": "1"}


def wandb_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``variables`` that a run at Weights & Biases needs: its key, its settings and the proxies."""
    return {name: value for name, value in variables.items() if name.startswith("WANDB_") or name.lower() in PROXIES}


def prepared(folder: Path, plan: Plan, settings: TrialSettings) -> Path:
    """The folder of a trial with its plan and settings, and without what an earlier attempt left.

    Raises:
        FileError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_room(folder)
        clear(folder)
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error.strerror}; choose another folder") from None
    codec.save(plan, folder / "plan.json")
    codec.save(settings, folder / "settings.json")
    return folder.resolve()


def shortage(ranks: int) -> str | None:
    """Why this machine has too little free memory now to start the ranks; None if it has enough."""
    free = available_bytes() - floor_bytes()
    if free >= ranks * RANK_START_BYTES:
        return None
    need = f"{ranks} ranks need {show_bytes(ranks * RANK_START_BYTES)} of memory to start"
    return f"{need}, {show_bytes(max(0, free))} are free beside the {show_bytes(floor_bytes())} that are left to others"


def not_started(plan: Plan, message: str) -> Measurement:
    """Measurement of a trial that this machine could not start."""
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.INFRASTRUCTURE, evidence=Evidence(message=message), wall_seconds=0.0
    )


def allowed_restarts(plan: Plan, settings: TrialSettings) -> int:
    """Maximum number of restarts of the ranks after a failure. 0 for a trial, which would start from the beginning; only a training
    resumes.
    """
    if settings.total_steps is None:
        return 0
    return plan.candidate.options.max_restarts if settings.max_restarts is None else settings.max_restarts


def devices_here() -> int:
    """Number of GPUs that a process here may use; 0 if there is no driver or it does not respond."""
    count, visible = _most_devices(), _visible()
    return count if visible is None else min(count, len(visible))


def _most_devices() -> int:
    """Number of GPUs of this machine, visible or not."""
    try:
        return sum(line.startswith("GPU ") for line in nvidia_smi("-L").splitlines())
    except InputError:
        return 0


def _visible() -> list[str] | None:
    """Devices in CUDA_VISIBLE_DEVICES, by number or name; None if it is not set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if chosen is None else [item.strip() for item in chosen.split(",") if item.strip()]
