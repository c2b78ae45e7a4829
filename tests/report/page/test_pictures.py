"""Charts of a plan, compared with the values that they show."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from strategist.contract.mesh import mesh_axes
from strategist.contract.report import PlanReport, Span, Timeline
from strategist.profiles.cluster import resolve_cluster
from strategist.report.page.candidates import candidates
from strategist.report.page.communication import communication
from strategist.report.page.funnel import funnel
from strategist.report.page.memory import memory
from strategist.report.page.mesh import mesh
from strategist.report.page.step_time import time
from strategist.report.page.timeline import MAX_TITLED_BOXES, timeline
from strategist.report.page.why_not import why_not
from strategist.units import show_bytes
from tests.report.page.reader import Reader
from tests.report.page.reports import pipeline, streamed


def widths(picture: str, look: str = "") -> list[float]:
    return [float(width) for width in re.findall(rf'<rect[^>]* width="([0-9.]+)" height="10"[^>]*class="{look}', picture)]


def test_the_length_of_a_memory_bar_is_the_ranks_memory() -> None:
    report = pipeline()
    picture = memory(report)
    bars = picture.split("<svg")[1:]
    assert len(bars) == len(report.ranks) + len(report.instants)
    capacity = float(re.findall(r'd="M([0-9.]+) [^"]*" class="capacity"', picture)[0])
    for bar, held in zip(bars, (item.memory for item in (*report.ranks, *report.instants)), strict=True):
        share = held.total / report.plan.estimate.capacity_bytes
        assert sum(widths(bar)) == pytest.approx(share * capacity, abs=1.5)
        assert show_bytes(held.total) in bar


@pytest.mark.parametrize("made", [pipeline, streamed])
def test_the_largest_candidate_peak_is_the_peak_memory(made: Callable[[], PlanReport]) -> None:
    report = made()
    peak = report.plan.estimate.peak_memory_bytes
    assert max(instant.memory.total for instant in report.instants) == pytest.approx(peak, rel=0.01)
    assert report.instants[-1].name == "optimizer step"


def test_the_communication_chart_shows_the_bytes_of_each_axis() -> None:
    report = pipeline()
    assert [row.axis for row in report.traffic] == ["tp", "dp_shard", "dp_shard", "pp"]
    picture = communication(report.traffic, "Bytes")
    assert all(show_bytes(row.message_bytes) in picture for row in report.traffic)
    assert "No rank sends" in communication((), "Bytes")


def test_the_fullest_rank_has_the_estimated_peak_memory() -> None:
    report = pipeline()
    fullest = max(rank.memory.total for rank in report.ranks)
    assert fullest == pytest.approx(report.plan.estimate.peak_memory_bytes)
    assert [rank for item in report.ranks for rank in item.ranks] == list(range(4))


def test_parts_of_the_step_time_sum_to_the_step() -> None:
    assert sum(widths(time(pipeline().plan.estimate))) == pytest.approx(100, abs=2)


def test_the_mesh_chart_of_an_axis_shows_one_of_its_groups() -> None:
    report = pipeline()
    figures = mesh(report.mesh, report.plan.cluster).split("<figure>")[1:]
    assert [axis.name for axis in report.mesh] == ["pp", "dp_shard", "tp"]
    for figure, axis in zip(figures, report.mesh, strict=True):
        assert figure.count('class="device own"') == axis.degree
        assert figure.count('class="device') == report.plan.cluster.devices
        assert axis.link in figure
        assert ('class="way far"' in figure) == axis.across_nodes


@pytest.mark.parametrize(("nodes", "boxes"), [(64, 64), (512, 64), (72, 36)])
def test_boxes_of_a_large_mesh_are_one_or_several_nodes(nodes: int, boxes: int) -> None:
    cluster = resolve_cluster(f"{nodes}x8xH100")
    layout = replace(pipeline().plan.candidate.layout, pp=4, dp_shard=nodes, tp=2)
    across, shards, inside = mesh(tuple(mesh_axes(layout, cluster)), cluster).split("<figure>")[1:]
    for figure, ranks in ((across, 4), (shards, nodes), (inside, 2)):
        assert figure.count('class="device') == boxes
        assert sum(map(int, re.findall(r'class="number">(\d+)<', figure))) == ranks


def test_spans_of_the_timeline_do_not_overlap_and_end_with_the_step() -> None:
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


def test_thousands_of_spans_are_drawn_as_few_shapes() -> None:
    spans = tuple(
        Span(rank=0, work="forward", start_seconds=float(at), end_seconds=at + 1.0, stage=0, micro_batch=at)
        for at in range(MAX_TITLED_BOXES + 1)
    )
    simulated_step = Timeline(
        schedule="", micro_batches=MAX_TITLED_BOXES + 1, step_seconds=MAX_TITLED_BOXES + 1.0, spans=spans, bubble_seconds=(0.0,)
    )
    picture = timeline(simulated_step)
    assert picture.count('<path d="M0.0 0h') == 1
    assert picture.count("<rect") == 1
    assert f"{MAX_TITLED_BOXES + 1:,} times" in picture


def test_streamed_stages_have_a_timeline_of_one_round() -> None:
    report = streamed()
    played = report.timeline
    assert played is not None
    passes = [span for span in played.spans if span.micro_batch is not None]
    layers = report.plan.model.layers
    assert len(passes) == 2 * (layers + 1) * played.micro_batches  # embedding and head have a backward pass only
    assert played.rounds == 1
    assert played.step_seconds == pytest.approx(report.plan.estimate.step_seconds, rel=0.05)
    assert all(f'class="number">{number}<' in timeline(played) for number in range(played.micro_batches))


def test_every_candidate_has_a_dot_with_filter_attributes() -> None:
    report = pipeline()
    space = report.space
    assert space is not None
    page = Reader(candidates(space, report.plan))
    dots = [attributes for tag, attributes in page.found if tag == "circle" and "data-item" in attributes]
    assert len(dots) == len(space.seen)
    assert sum(dot["data-of-fits"] == "yes" for dot in dots) == sum(item.place is not None for item in space.seen)
    places = [f"place {item.place:,};" if item.place is not None else "does not fit;" for item in space.seen]
    assert [sum(place in text for text in page.texts["title"]) for place in places] == [places.count(place) for place in places]
    assert sum("front" in dot["class"] for dot in dots) == sum(item.front for item in space.seen)
    offered = page.of("name", "select")
    assert "offload" not in offered  # offload is fixed
    assert {f"data-of-{name.replace('_', '-')}" for name in offered} <= set(dots[0])


def test_the_funnel_ends_with_the_candidates_that_fit() -> None:
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


def test_every_other_value_shows_its_obstacle() -> None:
    explanation = pipeline().explanation
    page = Reader(why_not(explanation))
    others = [other for decision in explanation.decisions for other in decision.why_not]
    assert page.of("data-of-verdict") == [other.obstacle.value for other in others]
    cells = set(page.texts["td"])
    assert all(other.text in cells for other in others if other.text)


def test_a_plan_without_other_values_shows_a_message() -> None:
    alone = replace(pipeline().explanation, decisions=())
    assert "No setting of this plan has another value" in why_not(alone)
