"""The local executor: one trial on this machine, with torchrun as its launcher."""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError
from strategist.executors import processes
from strategist.executors.engine import Engine, Torchrun
from strategist.executors.executor import OnEvent
from strategist.executors.host_agents import TOKEN
from strategist.executors.host_memory import available_bytes, floor_bytes
from strategist.executors.preflight import require_memory, require_ready, require_room
from strategist.executors.requirements import require_supervision, require_torch
from strategist.executors.trial_metrics import figures
from strategist.executors.trial_outcome import Measure, judge
from strategist.executors.trial_process import TERM_GRACE_SECONDS, supervise
from strategist.executors.trial_records import clear, collect, log_tail
from strategist.units import MIB, show_bytes

TORCHRUN = Torchrun()
RUNTIME = (sys.executable, "-m", "strategist_runtime")
RANK_START_BYTES = 400 * MIB
"""What a rank holds once torch is imported: about 300 MiB with torch 2.13 on CPU, and some room."""

KEPT = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "XDG_CACHE_HOME", "HF_HOME"}
KEPT_PREFIXES = (
    "LC_", "PYTHON", "SLURM", "CUDA", "NVIDIA_", "NCCL", "GLOO", "OMP", "MKL", "KMP", "TORCH", "PYTORCH", "TRITON", "CUBLAS",
)  # fmt: skip
"""All that a trial sees of the environment: tokens and passwords that lie about in it stay out of its logs."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")


HOSTS_GRACE_SECONDS = 10.0
"""What agents on other hosts get to end what they started, and to say that they have."""

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Has each attempt of the ranks make a store of its own: what the one before left in a shared one stops most second attempts, and
torchrun's listens on every interface."""

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
"""gloo would listen where the machine's name leads."""


@dataclass(frozen=True, kw_only=True)
class LocalExecutor:
    """Runs trials here, one process a rank. What a plan says about the environment overrides what is there.

    ``study`` marks the processes of one study, so that what a killed tuner left behind can be found. ``engine`` starts the ranks;
    ``program`` is run by each, with plan, folder and settings. ``lost`` are devices of this machine that are not used any more, by
    their numbers.
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
        measurement = run_trial(
            plan, folder, settings, on_event,
            command=self.command(plan, folder, restarts),
            environment=self._environment(plan, restarts) | (wandb_environment(os.environ) if settings.wandb else {}),
            study=self.study, starts=ranks, ranks=ranks, engine=self.engine, restarts=restarts,
        )  # fmt: skip
        codec.save(measurement, folder / "measurement.json")
        return measurement

    def _environment(self, plan: Plan, restarts: int) -> dict[str, str]:
        """What the launcher and its ranks see: what the plan says over what is there."""
        elsewhere = self.engine.elsewhere
        kept = trial_environment(os.environ, 1 if elsewhere else threads(plan))
        ours = {**({} if elsewhere else LOOPBACK), **launcher_environment(self.engine), **kept}
        return {**ours, **environment(plan), **self._left(), **(OWN_STORE if restarts or not elsewhere else {})}

    def command(self, plan: Plan, folder: Path, restarts: int = 0) -> tuple[str, ...]:
        """The command of a trial: launcher, then for each rank a keeper, then the program."""
        return (*self.engine.launcher(plan, folder, restarts), *supervised_rank(folder, self.program))

    def without(self, ranks: Collection[int]) -> "LocalExecutor":
        """The same, on what is left when the devices of these ranks are gone; a rank has the device of its place."""
        left = [device for device in range(devices_here()) if device not in self.lost]
        return replace(self, lost=self.lost | {left[rank] for rank in ranks if rank < len(left)})

    def _left(self) -> dict[str, str]:
        """Hides the lost devices from the ranks."""
        if not self.lost:
            return {}
        shown = _visible() or [str(device) for device in range(_most_devices())]
        return {"CUDA_VISIBLE_DEVICES": ",".join(name for device, name in enumerate(shown) if device not in self.lost)}

    def preflight(self, plan: Plan) -> None:
        """What would fail every trial is said before the first.

        Raises:
            InputError: no Linux, no torch, fewer devices than the plan has ranks, or what the doctor would say.
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
            require_ready(kind, ours=self.program == RUNTIME)


def run_trial(
    plan: Plan,
    folder: Path,
    settings: TrialSettings,
    on_event: OnEvent | None,
    *,
    command: Sequence[str],
    environment: dict[str, str],
    study: str,
    starts: int,
    ranks: int,
    engine: Engine = TORCHRUN,
    restarts: int = 0,
    measure: Measure = figures,
) -> Measurement:
    """Runs the command of a trial in its prepared folder to its end, and judges what its ``ranks`` left there, of which ``measure``
    makes the figures. It is not started where this machine lacks the memory to start so many processes (``starts``)."""
    if not engine.elsewhere and (missing := shortage(starts)) is not None:
        return not_started(plan, missing)
    ending = supervise(
        command, folder=folder, environment=environment, tag=processes.new_tag(study), ranks=ranks, settings=settings,
        on_event=on_event, grace_seconds=grace_seconds(engine), restarts=restarts, queues=engine.queues,
        elsewhere=engine.elsewhere,
    )  # fmt: skip
    return judge(plan, settings, ending, collect(folder, ranks), log_tail(folder, "launcher"), measure)


def supervised_rank(folder: Path, program: Sequence[str]) -> tuple[str, ...]:
    """The command of a rank: a keeper, then the program with plan, folder and settings."""
    supervisor = (sys.executable, "-m", "strategist.executors.process_supervisor", "rank", str(folder))
    return (*supervisor, *program, str(folder / "plan.json"), "--out", str(folder), "--settings", str(folder / "settings.json"))


def grace_seconds(engine: Engine) -> float:
    """What processes get to end by themselves when their trial is ended."""
    return HOSTS_GRACE_SECONDS if engine.elsewhere else TERM_GRACE_SECONDS


def launcher_environment(engine: Engine) -> dict[str, str]:
    """What the engine's launcher needs to hear."""
    return {name: value for name, value in os.environ.items() if name.startswith(engine.passes)}


def threads(plan: Plan) -> int:
    """Those of a rank: ranks on a CPU have a core each; beside a GPU the host updates what is offloaded with all it has."""
    here = min(plan.candidate.layout.world_size, plan.cluster.gpus_per_node)
    return 1 if plan.cluster.device.kind == "cpu" else max(1, len(os.sched_getaffinity(0)) // here)


def trial_environment(ours: Mapping[str, str], threads: int = 1) -> dict[str, str]:
    """What of ``ours`` a trial gets; with it, so many threads a rank unless set otherwise."""
    kept = {name: value for name, value in ours.items() if name in KEPT or (name.startswith(KEPT_PREFIXES) and name != TOKEN)}
    return {"OMP_NUM_THREADS": str(threads), **kept, "PYTHONUNBUFFERED": "1"}


def wandb_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What a run at Weights & Biases needs of ``ours``: its key and settings, and the way out."""
    return {name: value for name, value in ours.items() if name.startswith("WANDB_") or name.lower() in PROXIES}


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
    """Why this machine cannot start so many ranks right now; None when it can."""
    free = available_bytes() - floor_bytes()
    if free >= ranks * RANK_START_BYTES:
        return None
    need = f"{ranks} ranks need {show_bytes(ranks * RANK_START_BYTES)} of memory to start"
    return f"{need}, {show_bytes(max(0, free))} are free beside the {show_bytes(floor_bytes())} that are left to others"


def not_started(plan: Plan, message: str) -> Measurement:
    """Of a trial that this machine could not begin."""
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.INFRASTRUCTURE, evidence=Evidence(message=message), wall_seconds=0.0
    )


def allowed_restarts(plan: Plan, settings: TrialSettings) -> int:
    """How often the ranks are started again when one fails: those of a training, which goes on; a trial would begin anew."""
    if settings.total_steps is None:
        return 0
    return plan.candidate.options.max_restarts if settings.max_restarts is None else settings.max_restarts


def devices_here() -> int:
    """GPUs that a process here may use; 0 when there is no driver or it does not answer."""
    count, visible = _most_devices(), _visible()
    return count if visible is None else min(count, len(visible))


def _most_devices() -> int:
    """GPUs of this machine, visible or not."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def _visible() -> list[str] | None:
    """The devices chosen by the user, by number or name; None where there is no choice."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if chosen is None else [item.strip() for item in chosen.split(",") if item.strip()]
