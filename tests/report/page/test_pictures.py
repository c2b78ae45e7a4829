"""The pictures of a plan, each against the values that it draws."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from strategist.contract.mesh import mesh_axes
from strategist.contract.report import Span, Timeline
from strategist.profiles.cluster import resolve_cluster
from strategist.report.page.candidates import candidates
from strategist.report.page.funnel import funnel
from strategist.report.page.memory import memory
from strategist.report.page.mesh import NODES, mesh
from strategist.report.page.step_time import time
from strategist.report.page.timeline import TITLED, timeline
from strategist.report.page.why_not import why_not
from strategist.units import show_bytes
from tests.report.page.reader import Reader
from tests.report.page.reports import pipeline


def widths(picture: str, look: str = "") -> list[float]:
    return [float(width) for width in re.findall(rf'<rect[^>]* width="([0-9.]+)" height="10"[^>]*class="{look}', picture)]


def test_a_bar_of_memory_is_as_long_as_its_rank_is_full() -> None:
    report = pipeline()
    picture = memory(report)
    bars = picture.split("<svg")[1:]
    assert len(bars) == len(report.ranks)
    capacity = float(re.findall(r'd="M([0-9.]+) [^"]*" class="capacity"', picture)[0])
    for bar, rank in zip(bars, report.ranks, strict=True):
        share = rank.memory.total / report.plan.estimate.capacity_bytes
        assert sum(widths(bar)) == pytest.approx(share * capacity, abs=1.5)
        assert show_bytes(rank.memory.total) in bar


def test_the_fullest_rank_is_the_one_of_the_estimate() -> None:
    report = pipeline()
    fullest = max(rank.memory.total for rank in report.ranks)
    assert fullest == pytest.approx(report.plan.estimate.peak_memory_bytes)
    assert [rank for item in report.ranks for rank in item.ranks] == list(range(4))


def test_time_adds_up() -> None:
    assert sum(widths(time(pipeline().plan.estimate))) == pytest.approx(100, abs=2)


def test_a_picture_an_axis_shows_one_of_its_groups() -> None:
    report = pipeline()
    figures = mesh(report.mesh, report.plan.cluster).split("<figure>")[1:]
    assert [axis.name for axis in report.mesh] == ["pp", "dp_shard", "tp"]
    for figure, axis in zip(figures, report.mesh, strict=True):
        assert figure.count('class="device own"') == axis.degree
        assert figure.count('class="device') == report.plan.cluster.devices
        assert axis.link in figure
        assert ('class="way far"' in figure) == axis.across_nodes


def test_of_many_nodes_those_are_drawn_that_a_group_reaches() -> None:
    cluster = resolve_cluster("64x8xH100")
    layout = replace(pipeline().plan.candidate.layout, pp=4, dp_shard=64, tp=2)
    across, shards, inside = mesh(tuple(mesh_axes(layout, cluster)), cluster).split("<figure>")[1:]
    assert re.findall(r">node (\d+)<", across) == ["0", "16", "32", "48"]
    assert len(re.findall(r">node \d+<", shards)) == NODES
    assert inside.count('class="device own"') == 2
    assert f"{NODES} of 64 nodes are drawn" in inside


def test_boxes_of_the_timeline_do_not_overlap_and_end_with_the_step() -> None:
    simulated_step = pipeline().timeline
    assert simulated_step is not None
    picture = timeline(simulated_step)
    boxes = re.findall(r"</title></rect>", picture)
    assert len(boxes) == len(simulated_step.spans)
    assert max(span.end_seconds for span in simulated_step.spans) == pytest.approx(simulated_step.step_seconds)
    for rank in range(4):
        own = sorted((span.start_seconds, span.end_seconds) for span in simulated_step.spans if span.rank == rank)
        assert all(begin >= end - 1e-9 for (_, end), (begin, _) in pairwise(own))
        idle = simulated_step.step_seconds - sum(end - begin for begin, end in own)
        assert idle == pytest.approx(simulated_step.bubble_seconds[rank], abs=1e-6)


def test_thousands_of_boxes_are_a_few_shapes() -> None:
    spans = tuple(
        Span(rank=0, work="forward", start_seconds=float(at), end_seconds=at + 1.0, stage=0, micro_batch=at)
        for at in range(TITLED + 1)
    )
    simulated_step = Timeline(schedule="", micro_batches=TITLED + 1, step_seconds=TITLED + 1.0, spans=spans, bubble_seconds=(0.0,))
    picture = timeline(simulated_step)
    assert picture.count('<path d="M0.0 0h') == 1
    assert picture.count("<rect") == 1
    assert f"{TITLED + 1:,} times" in picture


def test_every_candidate_has_a_dot_that_filters_find() -> None:
    report = pipeline()
    space = report.space
    assert space is not None
    page = Reader(candidates(space, report.plan))
    dots = [attributes for tag, attributes in page.found if tag == "circle" and "data-item" in attributes]
    assert len(dots) == len(space.seen)
    assert sum(dot["data-of-fits"] == "yes" for dot in dots) == sum(item.place is not None for item in space.seen)
    assert sum("front" in dot["class"] for dot in dots) == sum(item.front for item in space.seen)
    offered = page.of("name", "select")
    assert "offload" not in offered  # it is fixed
    assert {f"data-of-{name.replace('_', '-')}" for name in offered} <= set(dots[0])


def test_the_funnel_ends_with_what_fits() -> None:
    space = pipeline().space
    assert space is not None
    rows = re.findall(
        r'<tr><th scope="row">([^<]*)</th><td class="bar">.*?</td><td>([^<]*)</td><td>([^<]*)</td></tr>', funnel(space)
    )
    left = [int(count.replace(",", "")) for _, _, count in rows]
    assert left[0] == space.candidates
    assert left[-1] == left[-2] == space.feasible
    taken = [int(text.strip("−").replace(",", "")) for _, text, _ in rows if text]
    assert [before - after for before, after in pairwise(left)][: len(taken)] == taken


def test_every_other_value_says_what_stands_against_it() -> None:
    explanation = pipeline().explanation
    page = Reader(why_not(explanation))
    others = [other for decision in explanation.decisions for other in decision.why_not]
    assert page.of("data-of-verdict") == [other.obstacle.value for other in others]
    cells = set(page.texts["td"])
    assert all(other.text in cells for other in others if other.text)


def test_a_plan_without_alternatives_says_so() -> None:
    alone = replace(pipeline().explanation, decisions=())
    assert "No setting of this plan has another value" in why_not(alone)
