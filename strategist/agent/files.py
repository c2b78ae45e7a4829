"""Tools for files: other systems' configurations, plans, reports and traces."""

import json
from typing import Annotated, Never

from strategist import api
from strategist.agent import shared_arguments
from strategist.agent.pagination import PagedAnswer
from strategist.agent.plan_summary import ShownPlan, rounded, shown
from strategist.agent.problem import RefusedError
from strategist.agent.schema import Arguments, OneOf, text
from strategist.agent.session import AgentSession
from strategist.agent.tool import Finding, finding, tool
from strategist.contract import codec
from strategist.contract.knobs import KnobValue
from strategist.contract.request import Request
from strategist.frozen import frozen


@frozen
class CheckAnswer:
    """The plan that a file describes, as its framework runs it, and the best plan that the format can express; null if none fits.
    ``verdict`` is fits, tight, does not fit, or cannot tell; ``uncertainties`` are entries that could change it.
    Items: findings, then changes that help."""

    format: str
    fits: bool
    verdict: str
    uncertainties: tuple[str, ...]
    plan: ShownPlan | None
    best: ShownPlan | None


@frozen
class ShownChange:
    """A change of one setting; ``speedup`` is the old step time divided by the new one."""

    setting: str
    value: KnobValue
    speedup: float
    fits: bool
    text: str
    cards: tuple[str, ...]
    changes_convergence: bool


@frozen
class ExportAnswer:
    """An exported plan: its ``files`` in the workspace, and the ``command`` that starts them in their folder. Items: settings that
    the format cannot express."""

    format: str
    files: tuple[str, ...]
    command: tuple[str, ...]


@frozen
class SavedAnswer:
    """The file that was written, by its path in the workspace."""

    file: str


@frozen
class LoadedAnswer:
    """The plan of a file; other tools take its id."""

    plan: ShownPlan
    model: str
    gpus: str


@frozen
class TraceAnswer:
    """The trace that was written: open it in ui.perfetto.dev or chrome://tracing. ``bubble_ratio`` is the share of the step in
    which pipeline ranks wait."""

    file: str
    schedule: str
    step_seconds: float
    bubble_ratio: float


class CheckArguments(
    shared_arguments.SituationArguments, shared_arguments.Deciding, shared_arguments.Language, shared_arguments.WaitArguments
):
    file: Annotated[str, text("A configuration file in the workspace.", "ds_config.json")]
    format: Annotated[str, OneOf(api.readable_formats()), text("Format, if it cannot be recognised from the content.")] = ""
    model: shared_arguments.Model = ""


class ExportArguments(shared_arguments.Cards):
    plan: shared_arguments.PlanName
    format: Annotated[str, OneOf(api.formats()), text("Format of the files.")]
    folder: Annotated[str, text("A new folder in the workspace.", "train")]
    job: Annotated[str, OneOf(api.JOBS), text("Also write the job file of this scheduler.")] = ""
    image: Annotated[str, text("Container image of the job.", "torch:2.13")] = ""


class PlanFileArguments(Arguments):
    plan: shared_arguments.PlanName
    file: shared_arguments.NewFile


class LoadArguments(Arguments):
    file: Annotated[str, text("A plan file (.json) in the workspace.", "out/plan.json")]


class TraceArguments(shared_arguments.WaitArguments):
    plan: shared_arguments.PlanName
    file: Annotated[str, text("A new .json file in the workspace.", "out/trace.json")]


class ReportArguments(shared_arguments.Deciding, shared_arguments.Language, shared_arguments.WaitArguments):
    plan: Annotated[str, text("Id of a plan made here, or a plan's .json file; this or study.", "58698c070e9c")] = ""
    study: Annotated[str, text("Folder of a study in the workspace.", "studies/first")] = ""
    file: Annotated[str, text("A new .html file in the workspace.", "out/report.html")]


@tool({"file": "ds_config.json", "model": "8b", "gpus": "8x24GB"}, long=True)
def check_config(session: AgentSession, arguments: CheckArguments) -> PagedAnswer[CheckAnswer, Finding | ShownChange]:
    """Checks another framework's configuration file in the workspace: fit, speed, problems, and a better plan."""
    path, name = session.workspace.inside(arguments.file), arguments.format
    values = shared_arguments.given(session, arguments, arguments.model)
    if values.model is None and (model_name := api.named_model(path, format=name)) is not None:
        shared_arguments.model_name(session.workspace, model_name)  # the model that the file names must not lie outside either
    review = api.check_config(path, values, format=name, **shared_arguments.deciding(session, arguments))
    for described in filter(None, (review.plan, review.best)):
        session.keep(
            described,
            Request(
                model=values.model or described.model.name, gpus=values.gpus or described.cluster.name, workload=described.workload
            ),
        )
    head = CheckAnswer(
        format=review.format, fits=review.fits, verdict=review.fit.value, uncertainties=review.uncertainties,
        plan=None if review.plan is None else shown(review.plan),
        best=None if review.best is None else shown(review.best),
    )  # fmt: skip
    changes = tuple(
        ShownChange(
            setting=item.setting, value=item.value, speedup=rounded(item.speedup), fits=item.fits, text=item.text,
            cards=item.cards, changes_convergence=item.changes_convergence,
        )
        for item in review.changes
    )  # fmt: skip
    return PagedAnswer(head=head, items=(*map(finding, review.findings), *changes))


@tool({"plan": "58698c070e9c", "format": "pytorch", "folder": "train"}, changes=True)
def export(session: AgentSession, arguments: ExportArguments) -> PagedAnswer[ExportAnswer, Finding]:
    """Writes a plan as another framework's files to a new folder in the workspace; with job, also the scheduler's job file."""
    folder = session.workspace.inside(arguments.folder)
    written = api.export_plan(
        session.plan(arguments.plan), arguments.format, job=arguments.job, options=api.JobOptions(image=arguments.image),
        **shared_arguments.decks(session, arguments),
    )  # fmt: skip
    files = tuple(session.workspace.show(path) for path in api.write_files(written, folder))
    return PagedAnswer(
        head=ExportAnswer(format=arguments.format, files=files, command=written.command),
        items=tuple(map(finding, written.findings)),
    )


@tool({"plan": "58698c070e9c", "file": "out/plan.json"}, changes=True)
def save_plan(session: AgentSession, arguments: PlanFileArguments) -> PagedAnswer[SavedAnswer, Never]:
    """Writes a plan to a new file in the workspace, for strategist run."""
    return PagedAnswer(
        head=SavedAnswer(file=session.workspace.write_new(arguments.file, codec.dumps(session.plan(arguments.plan))))
    )


@tool({"file": "out/plan.json"})
def load_plan(session: AgentSession, arguments: LoadArguments) -> PagedAnswer[LoadedAnswer, Never]:
    """Reads a plan file in the workspace and returns an id for other tools."""
    plan = session.plan(arguments.file)
    session.keep(plan, None)
    return PagedAnswer(head=LoadedAnswer(plan=shown(plan), model=plan.model.name, gpus=plan.cluster.name))


@tool({"plan": "58698c070e9c", "file": "out/report.html"}, long=True, changes=True)
def report(session: AgentSession, arguments: ReportArguments) -> PagedAnswer[SavedAnswer, Never]:
    """Writes a report of a plan or study for people: a new, self-contained .html file in the workspace."""
    if bool(arguments.plan) == bool(arguments.study):
        raise RefusedError("invalid_arguments", "one of plan and study is needed", "give a plan's id, or a study's folder")
    if arguments.study:
        from strategist.report.page.study_page import study_page

        page = study_page(api.study_report(session.workspace.inside(arguments.study)))
    else:
        from strategist.report.page.plan_page import plan_page

        found = api.report(session.plan(arguments.plan), **shared_arguments.deciding(session, arguments))
        page = plan_page(api.in_language(found, arguments.lang, cards=session.folders(arguments.cards)), arguments.lang)
    return PagedAnswer(head=SavedAnswer(file=session.workspace.write_new(arguments.file, page)))


@tool({"plan": "58698c070e9c", "file": "out/trace.json"}, long=True, changes=True)
def trace(session: AgentSession, arguments: TraceArguments) -> PagedAnswer[TraceAnswer, Never]:
    """Writes the simulated step of a plan to a new file in the workspace, for Perfetto or chrome://tracing."""
    document = api.trace(session.plan(arguments.plan))
    file, about = session.workspace.write_new(arguments.file, json.dumps(document)), document["otherData"]
    return PagedAnswer(
        head=TraceAnswer(
            file=file, schedule=about["schedule"], step_seconds=rounded(about["step_seconds"]),
            bubble_ratio=round(about["bubble_share"], 4),
        )
    )  # fmt: skip
