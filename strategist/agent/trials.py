"""Trials and tunings: prepared and reported by a worker, started by the server under a grant."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Never

from pydantic import Field, WithJsonSchema

from strategist import api
from strategist.agent import shared_arguments
from strategist.agent.pagination import PagedAnswer
from strategist.agent.plan_summary import rounded
from strategist.agent.problem import RefusedError
from strategist.agent.schema import Arguments, inlined, number, text, whole
from strategist.agent.session import AgentSession
from strategist.agent.tool import tool
from strategist.agent.workspace import Workspace
from strategist.contract import checkpoint, codec
from strategist.contract.measurement import Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.schema import type_schema
from strategist.contract.study import Study, StudyTrial
from strategist.errors import FileError
from strategist.frozen import frozen
from strategist.report.setting_text import change_words
from strategist.units import GIB

PLAN, SETTINGS, MEASUREMENT, REQUEST, OUT = "plan.json", "settings.json", "measurement.json", "request.yaml", "out"
TRIAL, TUNING = "start_trial", "start_tuning"
TEXT_SETTINGS = ("learning_rate_schedule", "no_decay", "non_finite", "data_type")
"""Settings of a run whose values are words; every other text among them is a path."""


def _settings_schema() -> dict[str, Any]:
    """Schema of the settings of a run, all of which are optional."""
    types: dict[str, Any] = {}
    type_schema(TrialSettings, types)
    properties = types.pop(TrialSettings.__name__)["properties"]
    for field in fields(TrialSettings):
        if field.default:
            properties[field.name]["default"] = field.default
    del properties["wandb"]
    return {"type": "object", "properties": inlined(properties, types), "additionalProperties": False}


class TrialArguments(Arguments):
    plan: shared_arguments.PlanName
    minutes: Annotated[float, number("Time limit of the job.", 10.0, least=0.1, most=100_000)]
    settings: Annotated[
        dict[str, Any],
        Field(
            default_factory=dict,
            description=f"Settings of the run, those of strategist run; paths are in the workspace. {TrialSettings.__doc__}",
        ),
        WithJsonSchema(_settings_schema()),
    ]


class TuningArguments(shared_arguments.Cards):
    plan: Annotated[str, text("Id of a plan that answers a request.", "58698c070e9c")]
    study: Annotated[str, text("A name for the study.", "first", pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    trials: Annotated[int, whole("New trials.", 3, most=10_000)]
    minutes: Annotated[float, number("Time limit of the job.", 10.0, least=0.1, most=100_000)]
    steps: Annotated[int, whole("Steps to measure in a trial.", 20, most=100_000)] = 0


class JobArguments(Arguments):
    """A job's folder, and the tool that started it."""

    kind: str
    folder: str


@frozen
class Prepared:
    """A job that can be started: arguments of ``strategist``, the folder, and the number of earlier trials in it."""

    command: tuple[str, ...]
    folder: str
    attempts: int


@frozen
class TrialCount:
    """Number of attempts of a trial: runs in its folder."""

    attempts: int


@frozen
class ShownTrial:
    """A trial with measured and predicted figures; null if unknown."""

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


@tool()
def prepare_trial(session: AgentSession, arguments: TrialArguments) -> PagedAnswer[Prepared, Never]:
    """Writes the files that ``strategist run`` needs into a new folder."""
    plan, settings = session.plan(arguments.plan), run_settings(session.workspace, arguments.settings)
    folder = _studies(session) / f"trial-{session.job.removeprefix('job-')}"
    folder.mkdir(parents=True)
    codec.save(plan, folder / PLAN)
    codec.save(settings, folder / SETTINGS)
    command = ("run", str(folder / PLAN), "--settings", str(folder / SETTINGS), "--out", str(folder / OUT))
    return PagedAnswer(head=Prepared(command=command, folder=str(folder), attempts=0))


@tool()
def prepare_tuning(session: AgentSession, arguments: TuningArguments) -> PagedAnswer[Prepared, Never]:
    """Writes the files that ``strategist tune`` needs into the study's folder."""
    if (answered := session.request(arguments.plan)) is None:
        raise RefusedError("unknown_plan", f"plan {arguments.plan} answers no request that was made here", "call plan first")
    request = replace(answered, backend="native") if answered.backend == "any" else answered
    deciding, folder = shared_arguments.decks(session, arguments), _studies(session) / arguments.study
    if not folder.resolve().is_relative_to(session.workspace.root):
        raise RefusedError("outside_workspace", f"study {arguments.study} lies outside the workspace", "choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REQUEST).write_text(api.request_text(request), encoding="utf-8")
    before, trials = _study(folder), arguments.trials
    options = [
        "--trials",
        str((before.counted if before else 0) + trials),
        "--minutes",
        f"{arguments.minutes:g}",
        "--confirm",
        "0",
        "--quiet",
    ]
    options += ["--steps", str(arguments.steps)] if arguments.steps else []
    for name in ("cards", "without"):
        options += [part for value in deciding[name] for part in (f"--{name}", str(value))]
    command = ("tune", "--request", str(folder / REQUEST), "--study", str(folder), *options)
    return PagedAnswer(head=Prepared(command=command, folder=str(folder), attempts=before.attempts if before else 0))


@tool()
def list_trials(session: AgentSession, arguments: JobArguments) -> PagedAnswer[TrialCount, ShownTrial]:
    """The trials of a job's folder."""
    folder = session.workspace.inside(arguments.folder)
    if arguments.kind == TUNING:
        study = _study(folder)
        trials = tuple(_shown(trial, best=trial.number == study.best) for trial in study.trials) if study else ()
        return PagedAnswer(head=TrialCount(attempts=study.attempts if study else 0), items=trials)
    return PagedAnswer(head=TrialCount(attempts=int((folder / OUT / PLAN).exists())), items=tuple(_trial_run(folder)))


def run_settings(workspace: Workspace, given: dict[str, Any]) -> TrialSettings:
    """The settings of a run: those given, else those of the checkpoint that it resumes from, else the defaults.

    Raises:
        RefusedError: a path lies outside the workspace, also one that a checkpoint names.
        CodecError, InputError: a setting is unknown, or its value breaks a law.
    """
    if given.get("wandb"):
        raise RefusedError("invalid_value", "settings.wandb sends figures to another machine", "leave it out")
    resume = given.get("resume")
    base = TrialSettings()
    if isinstance(resume, str) and resume:
        base = checkpoint.read(checkpoint.find(workspace.inside(resume), "resume")).resume_settings()
    if given.get("total_steps") is not None:
        given = {"wall_timeout_seconds": None, **given}  # the minutes of the job end it
    data = {**codec.encode(base), **given}
    placed = {name: value if name in TEXT_SETTINGS else _placed(workspace, value) for name, value in data.items()}
    found: TrialSettings = codec.decode(TrialSettings, placed, "settings")
    return found


def _placed(workspace: Workspace, value: Any) -> Any:
    """A path as a full path; empty texts stay."""
    if isinstance(value, dict):
        return {name: _placed(workspace, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_placed(workspace, item) for item in value]
    return str(workspace.inside(value)) if isinstance(value, str) and value else value


def _studies(session: AgentSession) -> Path:
    if session.studies is None:  # the server has checked that
        raise RefusedError("not_granted", "this server was started without a grant", "ask for one")
    return session.studies


def _trial_run(folder: Path) -> Iterator[ShownTrial]:
    if (folder / OUT / MEASUREMENT).exists():
        plan, measured = codec.load(Plan, folder / PLAN), codec.load(Measurement, folder / OUT / MEASUREMENT)
        yield _figures(1, plan, "finished", measured, best=False)


def _shown(trial: StudyTrial, *, best: bool) -> ShownTrial:
    return _figures(trial.number, trial.plan, trial.state, trial.measurement, best=best)


def _figures(number: int, plan: Plan, state: str, measured: Measurement | None, *, best: bool) -> ShownTrial:
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
    """The study there; None before its first trial."""
    try:
        return api.study(folder)
    except FileError:
        return None
