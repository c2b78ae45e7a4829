"""The tool that looks at another system's file."""

from dataclasses import dataclass
from typing import Any

from strategist import api
from strategist.agent import asked
from strategist.agent.plans import Finding
from strategist.agent.room import Room
from strategist.agent.sheet import Sheet
from strategist.agent.shown import ShownPlan, rounded, shown
from strategist.contract.knobs import KnobValue
from strategist.contract.request import Request


@dataclass(frozen=True, kw_only=True)
class CheckAnswer:
    """What the file describes, as its own system would run it, and the best plan that the format can say; none where nothing fits.
    Items: findings, then changes that help."""

    format: str
    fits: bool
    plan: ShownPlan | None
    best: ShownPlan | None


@dataclass(frozen=True, kw_only=True)
class ShownChange:
    """One setting otherwise; ``speedup`` is the factor by which steps are faster."""

    setting: str
    value: KnobValue
    speedup: float
    fits: bool
    text: str
    cards: tuple[str, ...]
    changes_convergence: bool


def check_config(room: Room, arguments: dict[str, Any]) -> Sheet:
    """Whether a file fits, how fast it is, what is wrong with it and what would be better."""
    path, said, name = room.workspace.inside(arguments["file"]), asked.given(room, arguments), arguments.get("format", "")
    if said.model is None and (named := api.named_model(path, format=name)) is not None:
        asked.model_name(room.workspace, named)  # the file is not to lead anybody out of the workspace
    review = api.check_config(path, said, format=name, **asked.deciding(room, arguments))
    for made in filter(None, (review.plan, review.best)):
        room.keep(made, Request(model=said.model or made.model.name, gpus=said.gpus or made.cluster.name, workload=made.workload))
    head = CheckAnswer(
        format=review.format, fits=review.fits, plan=None if review.plan is None else shown(review.plan),
        best=None if review.best is None else shown(review.best),
    )  # fmt: skip
    findings = tuple(
        Finding(code=item.code, level=item.level.value, message=item.message, do=item.do, line=item.line)
        for item in review.findings
    )
    changes = tuple(
        ShownChange(
            setting=item.setting, value=item.value, speedup=rounded(item.speedup), fits=item.fits, text=item.text,
            cards=item.cards, changes_convergence=item.changes_convergence,
        )
        for item in review.changes
    )  # fmt: skip
    return Sheet(head=head, items=(*findings, *changes))
