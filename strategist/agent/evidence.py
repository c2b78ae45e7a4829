"""Tools for measurements: advise proposes what to try next, record_evidence adds a measurement to a study."""

import csv
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from strategist import api
from strategist.agent import shared_arguments
from strategist.agent.pagination import PagedAnswer
from strategist.agent.plan_summary import ShownPlan, rounded, settings, shown
from strategist.agent.problem import RefusedError
from strategist.agent.schema import Arguments, OneOf, number, text, whole
from strategist.agent.session import AgentSession
from strategist.agent.tool import tool
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.layout import OBSERVED_AXES
from strategist.contract.measurement import EVIDENCE_OUTCOMES, Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.contract.study import ImportResult
from strategist.errors import FileError, InputError
from strategist.frozen import frozen
from strategist.units import GIB, show_bytes, show_seconds

Share = Annotated[float, number("Share of the step.", 0.4, most=1.0)]
AXES_SCHEMA = {
    "type": "object", "properties": {axis: {"type": "number", "minimum": 0, "maximum": 1} for axis in OBSERVED_AXES},
    "additionalProperties": False,
}  # fmt: skip


class Outcomes(Arguments):
    outcome: Annotated[str, OneOf([outcome.value for outcome in EVIDENCE_OUTCOMES]), text("End of the run.")] = "ok"
    step_seconds: Annotated[float, number("Median time of a step.", 1.9)] = 0.0
    peak_memory_gib: Annotated[float, number("Peak memory of the fullest device.", 18.4)] = 0.0
    comm_ratio: Share = 0.0
    exposed_comm_ratio: Share = 0.0
    bubble_ratio: Share = 0.0


class Observed(Outcomes):
    mfu: Annotated[float, number("Share of the peak FLOPs.", 0.41)] = 0.0
    exposed_comm_ratio_by_axis: Annotated[
        dict[Annotated[str, OneOf(OBSERVED_AXES)], Share],
        Field(default_factory=dict, description="Share of the step in which only this axis communicated."),
        WithJsonSchema(AXES_SCHEMA, mode="validation"),
    ]
    rank_imbalance: Annotated[float, number("Computing time of a stage's slowest rank over its median, minus 1.", 0.1)] = 0.0
    stage_imbalance: Annotated[float, number("Computing time of the slowest over the median stage, minus 1.", 0.2)] = 0.0


class Recorded(Outcomes):
    tokens_per_second: Annotated[float, number("Of all devices together; give this or step_seconds.", 12000)] = 0.0
    steps_measured: Annotated[int, whole("Number of measured steps.", 20)] = 0
    message: Annotated[str, text("Error message of a failed run.", "CUDA out of memory")] = ""


class AdviseArguments(shared_arguments.Cards, shared_arguments.Language, shared_arguments.WaitArguments):
    plan: shared_arguments.PlanName
    measured: Annotated[Observed, Field(description="Measured figures; leave out what is unknown.")]


class RecordArguments(Arguments):
    study: shared_arguments.Study
    plan: shared_arguments.PlanName = ""
    measured: Annotated[Recorded, Field(description="Measured figures of a run of the plan.")] = Recorded()
    file: Annotated[str, text("A .csv, .parquet or .jsonl file in the workspace, instead of a plan.", "sweep.csv")] = ""


@frozen
class AdviceAnswer:
    """Items: changes that cards propose after a run of a plan, the largest predicted gain first. ``assumed``: figures that were not
    given; predictions are used instead."""

    plan: ShownPlan
    assumed: tuple[str, ...]


@frozen
class ShownProposal:
    """A change that a card proposes, with the prediction in words. ``speedup`` is null if the changed plan is illegal or too
    large."""

    card: str
    policy: str
    changes: dict[str, KnobValue]
    because: str
    predicted: str
    speedup: float | None
    plan: str


@frozen
class CardEvidence:
    """Number of pairs of trials to which a policy applies, and of those that confirm and contradict it."""

    card: str
    policy: str
    applied: int
    confirmed: int
    contradicted: int


@tool({"plan": "58698c070e9c", "measured": {"comm_ratio": 0.5, "exposed_comm_ratio": 0.4}}, long=True)
def advise(session: AgentSession, arguments: AdviseArguments) -> PagedAnswer[AdviceAnswer, ShownProposal]:
    """Proposes settings to change after a measured run, according to cards; the largest predicted gain first."""
    plan = session.plan(arguments.plan)
    known = arguments.measured.model_dump(exclude_unset=True)
    peak = known.pop("peak_memory_gib", None)
    assumed = () if peak is not None else ("peak memory is the plan's predicted one",)
    size = plan.estimate.memory.allocated if peak is None else peak * GIB
    outcome = Outcome(known.pop("outcome", "ok"))
    measured = Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=outcome, peak_memory_bytes=(int(size),), **known)
    deciding = shared_arguments.decks(session, arguments)
    default_request = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload)
    request = session.request(arguments.plan) or default_request
    proposals = [_shown(session, plan, request, item, deciding) for item in api.advise(plan, measured, **deciding)]
    ordered = sorted(proposals, key=lambda item: -(item.speedup or 0.0))
    return PagedAnswer(head=AdviceAnswer(plan=shown(plan), assumed=assumed), items=tuple(ordered))


@tool({"study": "studies/first", "plan": "58698c070e9c", "measured": {"step_seconds": 80.1, "peak_memory_gib": 12.4}}, changes=True)
def record_evidence(session: AgentSession, arguments: RecordArguments) -> PagedAnswer[ImportResult, CardEvidence]:
    """Adds measurements to a study in the workspace: a plan with its figures, or a file of measured candidates. Returns which
    cards the study's trials support or contradict."""
    study, request = session.workspace.inside(arguments.study), None
    if bool(arguments.file) == bool(arguments.plan):
        raise RefusedError("invalid_arguments", "one of plan and file is needed", "give a plan with its figures, or a file")
    if arguments.plan:
        request = session.request(arguments.plan)
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "agent.csv"
            _write(table, session.plan(arguments.plan), arguments.measured.model_dump(exclude_unset=True))
            try:
                result = api.import_trials(table, study, request=request)
            except FileError as error:
                raise (InputError.parsed(error.message, "correct it") if error.path == str(table) else error) from None
    else:
        result = api.import_trials(session.workspace.inside(arguments.file), study)
    head = replace(result, study=session.workspace.show(study))
    evidence = api.evidence(studies=[study]).evidence
    items = tuple(
        CardEvidence(
            card=item.card, policy=item.policy, applied=item.applied, confirmed=item.confirmed, contradicted=item.contradicted
        )
        for item in evidence
        if item.has_pairs
    )
    return PagedAnswer(head=head, items=items)


def _shown(session: AgentSession, plan: Plan, request: Request, proposal: api.Proposal, deciding: dict[str, Any]) -> ShownProposal:
    """A proposal with the predicted effect of its changes, if they are legal together."""
    bare = {name.rpartition(".")[2]: value for name, value in proposal.changes.items()}
    plan_id, speedup = "", None
    try:
        other = api.price(request, with_settings(plan.candidate, bare), **deciding)
    except InputError as error:
        predicted = str(error)
    else:
        plan_id, estimate = session.keep(other, request), other.estimate
        predicted = f"step {show_seconds(estimate.step_seconds)}, peak {show_bytes(estimate.peak_memory_bytes)}"
        predicted += "" if estimate.fits else f" of {show_bytes(estimate.capacity_bytes)}: too large"
        speedup = rounded(plan.estimate.step_seconds / estimate.step_seconds) if estimate.fits else None
    return ShownProposal(
        card=proposal.card, policy=proposal.policy, changes=proposal.changes, because=proposal.because, predicted=predicted,
        speedup=speedup, plan=plan_id,
    )  # fmt: skip


def _write(table: Path, plan: Plan, measured: dict[str, Any]) -> None:
    row = dict(_cells(plan, measured))
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)


def _cells(plan: Plan, measured: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "proposed_by", "agent"
    yield from ((name, value if type(value) is int else show_value(value)) for name, value in settings(plan).items())
    for name, value in measured.items():
        yield ("peak_memory_bytes", int(value * GIB)) if name == "peak_memory_gib" else (name, value)
