"""API of reports: everything shown about a plan, a run or a study, as one value. Exported by ``strategist.api``."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist.api.cards import Folders, Ids
from strategist.api.plans import check_legal, deck_of, explain, request_of
from strategist.cards.deck import Deck
from strategist.contract import codec, json_document
from strategist.contract.answer import Answer
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.mesh import mesh_axes
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.contract.report import (
    Instant,
    Learned,
    PlanReport,
    RankMemory,
    RunReport,
    RunStep,
    Space,
    Spent,
    StudyReport,
    Timeline,
)
from strategist.contract.settings import SETTING_NAMES, value_of
from strategist.cost.calibration import Calibration, load_calibration
from strategist.cost.shipped_calibrations import factors
from strategist.errors import FileError, InputError, StrategistError
from strategist.expr.columns import row_of, table
from strategist.planning import planner
from strategist.profiles.situation import Situation, situation, situation_of_plan
from strategist.profiles.stacks import stack_of_plan

if TYPE_CHECKING:
    from strategist.contract.study import Study
    from strategist.ledger.rows import TrialRow

NOT_CALIBRATED, FITTED_TO_ALL, LEFT_OUT = "nothing learned", "fitted to all trials", "each trial by what the others taught"
OTHER_FIELDS = ("step_range", "memory_spread", "trials")
"""Fields of a calibration that are no factors."""

MEASURED = "measurement.json"
"""The file by which the folder of a run is recognised."""


def report(about: Plan | Answer, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> PlanReport:
    """Report of a plan, or of an answer and its best plan.

    A plan is planned again by its own request. The request of a plan made by hand has its model, cluster and workload, and
    nothing fixed.

    Raises:
        InputError, FileError: the plan breaks a law, the answer has no plan, or a card or the calibration is wrong.
    """
    from strategist.report.command import plan_command

    if isinstance(about, Answer) and not about.plans:
        raise InputError(f"the answer for {about.request.model} on {about.request.gpus}", "holds no plan", "see its alternatives")
    plan = about.plans[0] if isinstance(about, Answer) else about
    check_legal(plan)
    deck, calibration_factors = deck_of(plan, cards, without), load_calibration(calibration)
    requested = situation_of_plan(plan, about.request if isinstance(about, Answer) else request_of(plan))
    resolves = _named(requested)
    answer = about if isinstance(about, Answer) else None
    if answer is None and resolves:
        answer = planner.answer(requested.request, deck=deck, calibration=calibration_factors)
    is_best = answer is not None and answer.plans[:1] == (plan,)
    plan_request = requested.request if is_best else replace(requested.request, fix=dict(_fixed(plan)))
    space, no_space = _space(requested, deck, calibration_factors)
    simulated_step, ranks, no_timeline = _simulated(plan, calibration_factors)
    instants, traffic = _step(plan, calibration_factors)
    other_plans = () if answer is None else tuple(other for other in answer.plans if other.candidate != plan.candidate)
    return PlanReport(
        plan=plan,
        plans=(plan, *other_plans),
        verdict="" if answer is None else answer.verdict,
        notes=() if answer is None else answer.notes,
        alternatives=() if answer is None else answer.alternatives,
        ranks=ranks,
        mesh=tuple(mesh_axes(plan.candidate.layout, plan.cluster)),
        explanation=explain(plan, cards=cards, without=without, calibration=calibration),
        timeline=simulated_step,
        no_timeline=no_timeline,
        space=space,
        no_space=no_space,
        command=plan_command(plan_request) if resolves else (),
        instants=instants,
        traffic=traffic,
    )


def _named(requested: Situation) -> bool:
    """Whether the names in the request resolve here to the plan's model and cluster."""
    try:
        resolved = situation(requested.request)
    except StrategistError:  # a file that is missing here, or a model that only the plan file describes
        return False
    return (resolved.model, resolved.cluster) == (requested.model, requested.cluster)


def _fixed(plan: Plan) -> Iterator[tuple[str, bool | int | str]]:
    """The settings that, fixed in a request, give this plan."""
    for name in SETTING_NAMES:
        if plan.matters(name):
            yield name, value_of(plan.candidate, name)


def _space(requested: Situation, deck: Deck, calibration: Calibration | None) -> tuple[Space | None, str]:
    """The candidates of the space; or None and the reason why there are none to show."""
    from strategist.search.downsampling import overview

    try:
        enumerated = planner.enumerated(requested, deck=deck, calibration=calibration)
    except InputError as error:  # a back end may refuse the model of an edited plan
        return None, str(error)
    return overview(enumerated, requested.request.workload.tokens_per_step), ""


def _simulated(plan: Plan, calibration: Calibration | None) -> tuple[Timeline | None, tuple[RankMemory, ...], str]:
    """The simulated step and the memory of each rank. If the step cannot be simulated, all ranks have the memory of the fullest
    one, and the text is the reason.
    """
    from strategist.cost.pipeline_ranks import rank_memory
    from strategist.report.simulated_timeline import timeline

    pp = plan.candidate.layout.pp
    stage_memories = (RankMemory(ranks=tuple(range(pp)), layers=-(-plan.model.layers // pp), memory=plan.estimate.memory),)
    if plan.candidate.knobs.offload == "streamed" and not plan.cluster.groups:
        simulated, rounds = planner.simulated_round(plan, calibration)
        return timeline(simulated, rounds), stage_memories, ""
    try:
        simulated = planner.simulated_step(plan, calibration)
    except InputError as error:
        return None, stage_memories, f"{error.law[0].upper()}{error.law[1:]}."
    columns = table([row_of(plan.candidate, plan.accumulation)])
    stack = stack_of_plan(plan)
    calibration_factors = factors(calibration, plan.cluster, stack)
    ranks = rank_memory(plan.model, plan.cluster, plan.workload, columns, calibration_factors, simulated, stack)
    return timeline(simulated), ranks, ""


def _step(plan: Plan, calibration: Calibration | None) -> tuple[tuple[Instant, ...], tuple[Traffic, ...]]:
    """Memory of a device through a step, and traffic over its links; empty if the nodes differ."""
    from strategist.cost.pipeline_ranks import step_memory
    from strategist.cost.traffic import step_traffic

    if plan.cluster.groups:
        return (), ()
    columns, stack = table([row_of(plan.candidate, plan.accumulation)]), stack_of_plan(plan)
    calibration_factors = factors(calibration, plan.cluster, stack)
    return (
        step_memory(plan.model, plan.cluster, plan.workload, columns, calibration_factors, stack),
        step_traffic(plan.model, plan.cluster, plan.workload, columns, stack),
    )


def study_report(location: str | Path) -> StudyReport:
    """Report of a study in a folder or on a server.

    Raises:
        FileError, InputError: there is no such study, or its ledger or its result cannot be read.
    """
    from strategist.ledger.ledger import Ledger
    from strategist.search.setting_importance import influences
    from strategist.tuner.study import study_of

    with Ledger.open(location) as ledger:
        study, rows, folder = study_of(ledger), ledger.trials(), ledger.folder
    measured = [
        (trial.plan.candidate, trial.measurement.step_seconds)
        for trial in study.trials
        if trial.measurement and trial.measurement.outcome is Outcome.OK and trial.measurement.step_seconds
    ]
    cluster = study.trials[0].plan.cluster if study.trials else None
    return StudyReport(
        study=study,
        influences=influences(measured),
        spent=tuple(_spent(rows, cluster.devices)) if cluster else (),
        price_per_device_hour=cluster.device.price_per_hour if cluster and study.kind is Kind.REAL else None,
        learned=_learned(folder),
        commands=() if folder is None else tuple(_commands(study, folder)),
    )


def report_of(
    location: str | Path, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None
) -> PlanReport | RunReport | StudyReport:
    """Report of a study (by folder or address), of a run (by folder), or of a plan or answer (by file).

    Raises:
        FileError, InputError: as :func:`report`, :func:`run_report` and :func:`study_report`.
    """
    from strategist.ledger.address import is_server

    path = Path(location)
    if is_server(location):
        return study_report(location)
    if (path / MEASURED).is_file():
        return run_report(location)
    return study_report(location) if path.is_dir() else report(_read(path), cards=cards, without=without, calibration=calibration)


def _read(path: Path) -> Plan | Answer:
    """The plan or the answer in a file, by the file's ``type``."""
    try:
        text = json_document.load(path)
    except FileError:
        return codec.load(Plan, path)  # its message says how to write a plan
    kind = ""
    with suppress(ValueError, RecursionError, AttributeError):
        kind = json.loads(text).get("type")
    return codec.parse(Answer, text, path) if kind == Answer.__name__ else codec.parse(Plan, text, path)


def run_report(folder: str | Path) -> RunReport:
    """Report of a run, from the folder that ``strategist run`` wrote.

    Raises:
        FileError: the folder holds no run, or one of its files cannot be read.
    """
    from strategist.executors.progress_file import read_steps

    run_folder = Path(folder)
    return RunReport(
        run=str(folder),
        plan=codec.load(Plan, run_folder / "plan.json"),
        measurement=codec.load(Measurement, run_folder / MEASURED),
        steps=tuple(_run_steps(read_steps(run_folder))),
    )


def _run_steps(steps: Sequence[dict[str, Any]]) -> Iterator[RunStep]:
    """The steps that have a number; lines without one are skipped."""
    for step in steps:
        with suppress(ValueError, TypeError, KeyError):
            yield RunStep(step=int(step["step"]), **{name: step.get(name) for name in ("loss", "seconds", "memory_bytes")})


def _commands(study: "Study", folder: Path) -> Iterator[tuple[str, ...]]:
    """Commands that continue the study of a folder, and that show its best plan."""
    from strategist.contract.study import BEST
    from strategist.report.command import tune_command

    if study.kind is Kind.REAL and (command := tune_command(study.request, study.goals, str(folder), len(study.trials))):
        yield command
    if (best := folder / BEST).exists():
        yield ("strategist", "report", str(best), "-o", "report.html")


def _spent(rows: "Sequence[TrialRow]", devices: int) -> Iterator[Spent]:
    """Device hours of the attempts, by their outcome."""
    seconds_by_outcome: dict[str, list[float]] = {}
    for row in rows:
        for attempt in row.attempts:
            if attempt.ended is not None and attempt.outcome is not None:
                seconds_by_outcome.setdefault(attempt.outcome.value, []).append(attempt.ended - attempt.started)
    for outcome, seconds in sorted(seconds_by_outcome.items(), key=lambda item: -sum(item[1])):
        yield Spent(ended=outcome, attempts=len(seconds), device_hours=devices * sum(seconds) / 3600)


def _learned(folder: Path | None) -> Learned | None:
    """Calibration and errors that the last tuning of a study wrote; None without a result."""
    from strategist.contract.study import RESULT
    from strategist.search.tuning_result import TuningResult

    if folder is None or not (folder / RESULT).exists():
        return None
    result = codec.load(TuningResult, folder / RESULT, any_size=True)
    errors = {NOT_CALIBRATED: result.errors_before, FITTED_TO_ALL: result.errors_after, LEFT_OUT: result.errors_left_out}
    before, after = result.calibration_before, result.calibration_after
    factors = ((item.name, getattr(before, item.name), getattr(after, item.name)) for item in fields(after))
    return Learned(
        step_errors={name: error.step_seconds for name, error in errors.items()},
        memory_errors={name: error.peak_memory for name, error in errors.items()},
        factors=tuple(item for item in factors if item[0] not in OTHER_FIELDS and item[1] != item[2]),
    )
