"""The use-cases of reports: all that is shown of a plan, as one value. ``strategist.api`` hands them out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from strategist import planner
from strategist.api_cards import Folders, Ids, load_cards
from strategist.api_plans import check_legal, explain, load_calibration
from strategist.cards.deck import Deck
from strategist.contract.answer import Answer
from strategist.contract.mesh import mesh_axes
from strategist.contract.plan import Plan
from strategist.contract.report import PlanReport, RankMemory, Space, Timeline
from strategist.contract.request import Request
from strategist.contract.settings import CONVERGENCE_SETTINGS, SETTING_NAMES, value_of
from strategist.cost.calibration import Calibration
from strategist.cost.ranks import rank_memory
from strategist.cost.shipped import factors
from strategist.errors import InputError, StrategistError
from strategist.expr.columns import row_of, table
from strategist.profiles.situation import Situation, situation
from strategist.report.command import plan_command
from strategist.report.played import timeline
from strategist.search.overview import overview

STREAMED = "Streamed stages follow no schedule that is simulated."
UNLIKE = "A step on nodes that differ is not simulated."


def report(about: Plan | Answer, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> PlanReport:
    """All that is shown of a plan, or of an answer and its best plan. A plan says nothing of what was asked: it is asked again for
    its model, cluster and workload, with nothing fixed.

    Raises:
        InputError, FileError: the plan breaks a law, the answer has none, or a card or the calibration is wrong.
    """
    if isinstance(about, Answer) and not about.plans:
        raise InputError(f"the answer for {about.request.model} on {about.request.gpus}", "holds no plan", "see its ways")
    plan = about.plans[0] if isinstance(about, Answer) else about
    check_legal(plan)
    deck, known = load_cards(cards, without), load_calibration(calibration)
    asked = _asked(plan, about.request if isinstance(about, Answer) else _request(plan))
    named = _named(asked)
    answer = about if isinstance(about, Answer) else planner.answer(asked.request, deck=deck, calibration=known) if named else None
    first = answer is not None and answer.plans[:1] == (plan,)
    again = asked.request if first else replace(asked.request, fix=dict(_fixed(plan)))
    space, no_space = _space(asked, deck, known)
    played, ranks, no_timeline = _played(plan, known)
    others = () if answer is None else tuple(other for other in answer.plans if other.candidate != plan.candidate)
    return PlanReport(
        plan=plan,
        plans=(plan, *others),
        verdict="" if answer is None else answer.verdict,
        notes=() if answer is None else answer.notes,
        ways=() if answer is None else answer.ways,
        ranks=ranks,
        mesh=tuple(mesh_axes(plan.candidate.layout, plan.cluster)),
        explanation=explain(plan, cards=cards, without=without, calibration=calibration),
        timeline=played,
        no_timeline=no_timeline,
        space=space,
        no_space=no_space,
        command=plan_command(again) if named else (),
    )


def _request(plan: Plan) -> Request:
    """What the plan would be the answer to: what may change convergence is allowed as far as the plan has it."""
    cluster, taken = plan.cluster, CONVERGENCE_SETTINGS.items()
    return Request(
        model=plan.model.name, gpus=cluster.name, workload=plan.workload, host_memory_bytes=cluster.host_memory_bytes,
        allow=tuple(name for name, usual in taken if plan.matters(name) and value_of(plan.candidate, name) != usual),
        node_seconds_between_failures=cluster.node_seconds_between_failures,
    )  # fmt: skip


def _asked(plan: Plan, request: Request) -> Situation:
    """The situation of the plan itself, whatever the names in the request mean here."""
    return Situation(request=request, model=plan.model, cluster=plan.cluster, notes=(), digest=plan.digests.profiles)


def _named(asked: Situation) -> bool:
    """Whether the names in the request mean here what the plan is for."""
    try:
        found = situation(asked.request)
    except StrategistError:  # a file that is elsewhere, or a model that only the plan knows
        return False
    return (found.model, found.cluster) == (asked.model, asked.cluster)


def _fixed(plan: Plan) -> Iterator[tuple[str, bool | int | str]]:
    """The settings that make the plan."""
    for name in SETTING_NAMES:
        if plan.matters(name):
            yield name, value_of(plan.candidate, name)


def _space(asked: Situation, deck: Deck, calibration: Calibration | None) -> tuple[Space | None, str]:
    """The candidates, or why there are none to show."""
    try:
        found = planner.walked(asked, deck=deck, calibration=calibration)
    except InputError as error:  # an edited plan may be of a model that a back end refuses
        return None, str(error)
    return overview(found, asked.request.workload.tokens_per_step), ""


def _played(plan: Plan, calibration: Calibration | None) -> tuple[Timeline | None, tuple[RankMemory, ...], str]:
    """The step and what each rank holds; where a step is not simulated, all ranks are taken as the fullest, and why."""
    why = STREAMED if plan.candidate.knobs.offload == "streamed" else UNLIKE if plan.cluster.groups else ""
    if why:
        pp = plan.candidate.layout.pp
        layers = -(-plan.model.layers // pp)
        return None, (RankMemory(ranks=tuple(range(pp)), layers=layers, memory=plan.estimate.memory),), why
    found = planner.played(plan, calibration)
    columns = table([row_of(plan.candidate, plan.accumulation)])
    known = factors(calibration, plan.cluster)
    ranks = rank_memory(plan.model, plan.cluster, plan.workload, columns, known, found)
    return timeline(found), ranks, ""
