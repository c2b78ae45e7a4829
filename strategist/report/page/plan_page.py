"""Report page of a plan."""

import shlex
from collections.abc import Iterator

from strategist.cards.card import ENGLISH
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Fit
from strategist.contract.report import PlanReport
from strategist.report.answer_summary import bound_by
from strategist.report.page.alternatives import alternatives, notes, ranking
from strategist.report.page.candidates import candidates
from strategist.report.page.communication import communication
from strategist.report.page.frame import Section, document
from strategist.report.page.funnel import funnel
from strategist.report.page.headline import BAD, GOOD, UNSURE, Figure, headline
from strategist.report.page.html import Html, element, join
from strategist.report.page.memory import memory
from strategist.report.page.mesh import mesh
from strategist.report.page.step_time import time
from strategist.report.page.tables import pairs
from strategist.report.page.timeline import timeline
from strategist.report.page.why_not import why_not
from strategist.report.plan import figures, supported_by
from strategist.report.plan_description import described_parts
from strategist.report.setting_text import change_words, gib, percent, tokens
from strategist.units import show_seconds


def plan_page(report: PlanReport, language: str = ENGLISH) -> str:
    """The whole page; ``language`` is that of the cards' texts."""
    plan = report.plan
    title = f"{plan.model.name} on {plan.cluster.name}"
    verdict = (element("p", report.verdict),) if report.verdict else ()
    introduction = element("p", f"Plan {plan.id}: {change_words(plan)}", class_="lead")
    head = join([element("h1", title), introduction, _headline(report), *verdict])
    return document(f"{title}, plan {plan.id}", head, list(_sections(report)), language)


def _headline(report: PlanReport) -> Html:
    plan, estimate = report.plan, report.plan.estimate
    fit = Fit.of(estimate.fit_confidence, plan.request.confidence if plan.request else DEFAULT_CONFIDENCE)
    spare = estimate.capacity_bytes - estimate.peak_memory_bytes
    margin = f"{gib(spare)} GiB to spare" if spare >= 0 else f"{gib(-spare)} GiB too many"
    low, high = estimate.step_seconds_range or (estimate.step_seconds, estimate.step_seconds)
    tiles = [
        Figure(name="tokens/s", value=tokens(estimate.tokens_per_second), remark=f"all {plan.cluster.devices} devices"),
        Figure(name="step", value=show_seconds(estimate.step_seconds), remark=f"90%: {show_seconds(low)} to {show_seconds(high)}"),
        Figure(name="MFU", value=percent(estimate.mfu), remark=f"bound by {bound_by(estimate.time)}"),
        Figure(name="GiB a device", value=gib(estimate.peak_memory_bytes), remark=f"of {gib(estimate.capacity_bytes)}"),
    ]
    if estimate.host_memory_bytes_per_node:
        tiles.append(Figure(name="GiB of host memory", value=gib(estimate.host_memory_bytes_per_node), remark="a node"))
    verdict = f"{margin}, probability {percent(estimate.shown_confidence)}"
    return headline(fit.value, BADGES[fit], verdict, tiles)


BADGES = {Fit.FITS: GOOD, Fit.TIGHT: UNSURE, Fit.UNKNOWN: UNSURE, Fit.TOO_LARGE: BAD}
"""Look of the badge for each verdict."""


def _sections(report: PlanReport) -> Iterator[Section]:
    plan = report.plan
    yield Section(title="Predicted", introduction="", body=pairs(figures(plan)))
    introduction = "Memory of each rank at its peak, by part."
    yield Section(title="Memory", introduction=introduction, body=memory(report))
    introduction = "Time of a step by part; communication without the share that overlaps with computation."
    yield Section(title="Time", introduction=introduction, body=time(plan.estimate))
    if report.traffic or not plan.cluster.groups:
        introduction = "Bytes that a rank sends per step with ring algorithms, for stages of equal size."
        yield Section(
            title="Communication",
            introduction=introduction,
            body=communication(report.traffic, "Bytes of a step, by axis and collective"),
        )
    introduction = "Boxes are devices, frames are nodes. The line connects one group of each axis."
    yield Section(title="Mesh", introduction=introduction, body=mesh(report.mesh, plan.cluster))
    picture = element("p", report.no_timeline) if report.timeline is None else timeline(report.timeline)
    yield Section(title="Timeline", introduction=TIMELINE if report.timeline else "", body=picture)
    yield Section(title="Settings", introduction="", body=pairs([*described_parts(plan), ("runs on", supported_by(plan))]))
    if report.space is not None:
        yield Section(title="Candidates", introduction="", body=candidates(report.space, plan))
        introduction = "Candidates removed by each card, then by memory. Each is counted once, at the first that removes it."
        yield Section(title="Funnel", introduction=introduction, body=funnel(report.space))
    elif report.no_space:
        yield Section(title="Candidates", introduction="", body=element("p", report.no_space))
    introduction = "The best plan with each other value of a setting; dependent settings change with it."
    yield Section(title="Why not", introduction=introduction, body=why_not(report.explanation))
    if len(report.plans) > 1 or report.alternatives:
        body = join([ranking(report.plans), alternatives(report.alternatives) if report.alternatives else Html()])
        yield Section(title="Other plans", introduction="", body=body)
    yield Section(title="Reproduce", introduction="", body=_reproduce(report))


TIMELINE = "Computation and waiting of each rank, in the order of the schedule; numbers are micro-batches. The picture scrolls."


def _reproduce(report: PlanReport) -> Html:
    """The command that reproduces the plan, and the digests of its inputs."""
    plan, digests = report.plan, report.plan.digests
    command = shlex.join(report.command) if report.command else ""
    block = element("pre", element("code", command)) if command else element("p", NO_COMMAND)
    digest_rows = pairs(
        [("plan", plan.id), ("deck", digests.deck), ("profiles", digests.profiles), ("calibration", digests.calibration)]
    )
    return join([block, digest_rows, notes(report.notes)])


NO_COMMAND = "The names of the model and the devices do not resolve to this plan here: plan with the original files."
