"""The tools that start something, which they may under a grant only: start_trial, start_tuning and trial_status."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strategist import api
from strategist.agent import asked
from strategist.agent.jobs import Job
from strategist.agent.problem import RefusedError
from strategist.agent.room import Room
from strategist.agent.sheet import Sheet
from strategist.agent.shown import rounded
from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist.profiles.request_file import request_text
from strategist.report.words import change_words
from strategist.tuner.contenders import REPEAT
from strategist.tuner.study import Study, StudyTrial
from strategist.units import GIB

PLAN, MEASUREMENT, REQUEST = "plan.json", "measurement.json", "request.yaml"


@dataclass(frozen=True, kw_only=True)
class StartedAnswer:
    """A job that was started, and what is left of the grant beside it."""

    job: str
    kind: str
    folder: str
    trials: int
    minutes: float
    trials_left: int
    minutes_left: float


@dataclass(frozen=True, kw_only=True)
class StatusAnswer:
    """What is left of the grant. Items: the jobs, or the trials of the job that was asked for."""

    trials_left: int
    minutes_left: float
    running: str


@dataclass(frozen=True, kw_only=True)
class ShownJob:
    """A job: running or ended, with its exit code (0 well, 1 a trial failed, 2 wrong input, 124 its minutes were over)."""

    job: str
    kind: str
    folder: str
    state: str
    exit_code: int | None
    seconds: float
    last_lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ShownTrial:
    """A trial: what was measured beside what was predicted; unknown is null."""

    trial: int
    plan: str
    settings: str
    state: str
    outcome: str
    message: str
    best: bool
    step_seconds: float | None
    predicted_step_seconds: float
    tokens_per_second: float | None
    peak_memory_gib: float | None
    comm_ratio: float | None
    exposed_comm_ratio: float | None


def start_trial(room: Room, arguments: dict[str, Any]) -> Sheet:
    """Runs a plan once, as ``strategist run`` does."""
    plan, purse, minutes = room.plan(arguments["plan"]), room.jobs.purse, arguments["minutes"]
    folder = purse.grant.folder / f"trial-{purse.jobs + 1}"

    def taken() -> int:
        return int((folder / "out" / PLAN).exists())

    def prepare() -> list[str]:
        codec.save(plan, folder / PLAN)
        return ["run", str(folder / PLAN), "--out", str(folder / "out")]

    return _started(room, room.jobs.start("trial", folder, prepare, trials=1, minutes=minutes, taken=taken), 1, minutes)


def start_tuning(room: Room, arguments: dict[str, Any]) -> Sheet:
    """Runs trials of the request that a plan answers, as ``strategist tune`` does."""
    trials, minutes = arguments["trials"], arguments["minutes"]
    if (answered := room.request(arguments["plan"])) is None:
        raise RefusedError("unknown_plan", f"plan {arguments['plan']} is none of this session", "call plan first")
    request = replace(answered, backend="native") if answered.backend == "any" else answered
    deciding = asked.decks(room, arguments)
    folder = room.jobs.purse.grant.folder / arguments["study"]
    if "/" in arguments["study"] or not folder.resolve().is_relative_to(room.workspace.root):
        raise RefusedError("outside_workspace", f"study {arguments['study']} is no plain name", "name it without slashes")
    before = _study(folder)
    ran, finished = _attempts(before), _counted(before)

    def taken() -> int:
        return _attempts(_study(folder)) - ran

    def prepare() -> list[str]:
        (folder / REQUEST).write_text(request_text(request), encoding="utf-8")
        options = ["--trials", str(finished + trials), "--minutes", f"{minutes:g}", "--confirm", "0", "--quiet"]
        for name in ("cards", "without"):
            options += [part for value in deciding[name] for part in (f"--{name}", str(value))]
        return ["tune", "--request", str(folder / REQUEST), "--study", str(folder), *options]

    job = room.jobs.start("tuning", folder, prepare, trials=trials, minutes=minutes, taken=taken)
    return _started(room, job, trials, minutes)


def trial_status(room: Room, arguments: dict[str, Any]) -> Sheet:
    """How jobs go, and what their trials showed."""
    items: tuple[Any, ...]
    if "job" in arguments:
        job = next((job for job in room.jobs.all if job.name == arguments["job"]), None)
        if job is None:
            raise RefusedError("invalid_value", f"job {arguments['job']} is none of this session", "call trial_status without it")
        job.over.wait(arguments.get("wait_seconds", 0))
        items = (_job(room, job), *_trials(job))
    else:
        items = tuple(_job(room, job) for job in room.jobs.all)
    (trials, minutes), running = room.jobs.left, room.jobs.running
    head = StatusAnswer(trials_left=trials, minutes_left=rounded(minutes), running=running.name if running else "")
    return Sheet(head=head, items=items)


def _started(room: Room, job: Job, trials: int, minutes: float) -> Sheet:
    left = room.jobs.left
    return Sheet(
        head=StartedAnswer(
            job=job.name, kind=job.kind, folder=room.workspace.show(job.folder), trials=trials, minutes=minutes,
            trials_left=left[0], minutes_left=rounded(left[1]),
        )
    )  # fmt: skip


def _job(room: Room, job: Job) -> ShownJob:
    return ShownJob(
        job=job.name, kind=job.kind, folder=room.workspace.show(job.folder), state="ended" if job.over.is_set() else "running",
        exit_code=job.exit_code, seconds=rounded(job.seconds), last_lines=job.last_lines,
    )  # fmt: skip


def _trials(job: Job) -> Iterator[ShownTrial]:
    if job.kind == "tuning":
        study = _study(job.folder)
        for trial in study.trials if study else ():
            yield shown_trial(trial, best=trial.number == (study.best if study else None))
    elif (job.folder / "out" / MEASUREMENT).exists():
        plan, measured = codec.load(Plan, job.folder / PLAN), codec.load(Measurement, job.folder / "out" / MEASUREMENT)
        yield _trial(1, plan, "finished", measured, best=False)


def shown_trial(trial: StudyTrial, *, best: bool) -> ShownTrial:
    """A trial of a study."""
    return _trial(trial.number, trial.plan, trial.state, trial.measurement, best=best)


def _trial(number: int, plan: Plan, state: str, measured: Measurement | None, *, best: bool) -> ShownTrial:
    peak = max(measured.peak_memory_bytes, default=None) if measured else None

    def figure(name: str) -> float | None:
        value = getattr(measured, name, None)
        return None if value is None else rounded(value)

    return ShownTrial(
        trial=number, plan=plan.id, settings=change_words(plan), state=state, outcome=measured.outcome.value if measured else "",
        message=measured.evidence.message if measured else "", best=best, step_seconds=figure("step_seconds"),
        predicted_step_seconds=rounded(plan.estimate.step_seconds), tokens_per_second=figure("tokens_per_second"),
        peak_memory_gib=None if peak is None else rounded(peak / GIB), comm_ratio=figure("comm_ratio"),
        exposed_comm_ratio=figure("exposed_comm_ratio"),
    )  # fmt: skip


def _study(folder: Path) -> Study | None:
    """The study there, None where nobody has tuned yet."""
    try:
        return api.study(folder)
    except FileError:
        return None


def _attempts(study: Study | None) -> int:
    """How often a trial of it was run; what a simulation kept from starting was not."""
    return sum(trial.attempts for trial in study.trials if not _simulated(trial)) if study else 0


def _counted(study: Study | None) -> int:
    """Its finished trials as ``--trials`` counts them."""
    return sum(not _simulated(trial) and trial.proposed_by != REPEAT for trial in study.finished) if study else 0


def _simulated(trial: StudyTrial) -> bool:
    return trial.measurement is not None and trial.measurement.kind is Kind.SIMULATED
