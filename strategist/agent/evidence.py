"""The tools of what was measured: advise says what to try next, record_evidence takes a measurement into a study."""

import csv
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strategist import api
from strategist.agent import asked
from strategist.agent.problem import RefusedError
from strategist.agent.room import Room
from strategist.agent.sheet import Sheet
from strategist.agent.shown import ShownPlan, rounded, settings, shown
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.errors import FileError, InputError
from strategist.rules.react import Proposal
from strategist.units import GIB, show_bytes, show_seconds

SHARES = ("comm_ratio", "exposed_comm_ratio", "bubble_ratio")


@dataclass(frozen=True, kw_only=True)
class AdviceAnswer:
    """``assumed`` says which figures are predictions because nobody gave a measured one. Items: what cards would try, what is
    predicted to help most first."""

    plan: ShownPlan
    assumed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ShownProposal:
    """What a card would try; ``predicted`` says what the cost model expects of the plan that it would be. No ``speedup``: it is
    illegal or too large."""

    card: str
    policy: str
    changes: dict[str, KnobValue]
    because: str
    predicted: str
    speedup: float | None
    plan: str


@dataclass(frozen=True, kw_only=True)
class RecordAnswer:
    """``taken`` trials are new in the study, ``known`` were there. Items: what the study's trials now say of cards."""

    study: str
    taken: int
    known: int


@dataclass(frozen=True, kw_only=True)
class CardEvidence:
    """Pairs of trials for and against a policy."""

    card: str
    policy: str
    applied: int
    confirmed: int
    contradicted: int


def advise(room: Room, arguments: dict[str, Any]) -> Sheet:
    """What cards would try after a run of a plan that showed some figures."""
    plan = room.plan(arguments["plan"])
    known = dict(arguments.get("measured", {}))
    peak = known.pop("peak_memory_gib", None)
    assumed = () if peak is not None else ("peak memory is the plan's predicted one",)
    size = plan.estimate.memory.allocated if peak is None else peak * GIB
    outcome = Outcome(known.pop("outcome", "ok"))
    measured = Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=outcome, peak_memory_bytes=(int(size),), **known)
    deciding = asked.decks(room, arguments)
    asked_for = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload)
    request = room.request(arguments["plan"]) or asked_for
    proposals = [_shown(room, plan, request, item, deciding) for item in api.advise(plan, measured, **deciding)]
    ordered = sorted(proposals, key=lambda item: -(item.speedup or 0.0))
    return Sheet(head=AdviceAnswer(plan=shown(plan), assumed=assumed), items=tuple(ordered))


def record_evidence(room: Room, arguments: dict[str, Any]) -> Sheet:
    """Takes a measurement of a plan, or a file of measured candidates, into a study of the workspace."""
    study, request = room.workspace.inside(arguments["study"]), None
    if ("file" in arguments) == ("plan" in arguments):
        raise RefusedError("invalid_arguments", "one of plan and file is needed", "give a plan with its figures, or a file")
    if "plan" in arguments:
        request = room.request(arguments["plan"])
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "agent.csv"
            _write(table, room.plan(arguments["plan"]), arguments.get("measured", {}))
            try:
                taken = api.import_trials(table, study, request=request)
            except FileError as error:
                raise (InputError.parsed(error.message, "correct it") if error.path == str(table) else error) from None
    else:
        taken = api.import_trials(room.workspace.inside(arguments["file"]), study)
    head = RecordAnswer(study=room.workspace.show(study), taken=taken.taken, known=taken.known)
    heard = api.evidence(studies=[study]).evidence
    items = tuple(
        CardEvidence(
            card=item.card, policy=item.policy, applied=item.applied, confirmed=item.confirmed, contradicted=item.contradicted
        )
        for item in heard
        if item.spoken
    )
    return Sheet(head=head, items=items)


def _shown(room: Room, plan: Plan, request: Request, proposal: Proposal, deciding: dict[str, Any]) -> ShownProposal:
    """A proposal with what the cost model says of its changes, if they are legal together."""
    bare = {name.rpartition(".")[2]: value for name, value in proposal.changes.items()}
    made, speedup = "", None
    try:
        other = api.price(request, with_settings(plan.candidate, bare), **deciding)
    except InputError as error:
        predicted = str(error)
    else:
        made, found = room.keep(other, request), other.estimate
        predicted = f"step {show_seconds(found.step_seconds)}, peak {show_bytes(found.peak_memory_bytes)}"
        predicted += "" if found.fits else f" of {show_bytes(found.capacity_bytes)}: too large"
        speedup = rounded(plan.estimate.step_seconds / found.step_seconds) if found.fits else None
    return ShownProposal(
        card=proposal.card, policy=proposal.policy, changes=proposal.changes, because=proposal.because, predicted=predicted,
        speedup=speedup, plan=made,
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
