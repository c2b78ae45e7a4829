"""The report page of a plan: self-contained, and consistent with its values."""

import re
from dataclasses import replace

import pytest

from strategist.contract.report import PlanReport
from strategist.report.page.memory import memory
from strategist.report.page.plan_page import plan_page
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import tokens
from tests.report.page.reader import Reader
from tests.report.page.reports import pipeline, streamed

EVIL = "</title><script>alert(1)</script>"


@pytest.fixture(scope="module", params=[pipeline, streamed], ids=lambda made: made.__name__)
def report(request: pytest.FixtureRequest) -> PlanReport:
    made: PlanReport = request.param()
    return made


@pytest.fixture(scope="module")
def page(report: PlanReport) -> str:
    return plan_page(report)


def test_the_page_is_valid_and_self_contained(page: str) -> None:
    Reader(page).check_self_contained()
    assert "url(" not in page
    assert "@import" not in page
    assert len(page.encode()) < 6e6


def test_equal_reports_give_equal_pages(report: PlanReport, page: str) -> None:
    assert plan_page(report) == page


def test_the_page_shows_the_prediction(report: PlanReport, page: str) -> None:
    assert report.plan.id in page
    assert f"{tokens(report.plan.estimate.tokens_per_second)} for all" in page
    assert report.verdict in page
    for name in ("Memory", "Time", "Mesh", "Timeline", "Candidates", "Funnel", "Why not", "Reproduce"):
        assert f"<h2>{name}</h2>" in page
    assert ("<h2>Other plans</h2>" in page) == (len(report.plans) > 1 or bool(report.alternatives))


def test_the_page_starts_with_the_verdict_and_its_figures(page: str) -> None:
    head = page.partition("</header>")[0]
    assert '<strong class="badge good">fits</strong>' in head
    for name in ("tokens/s", "step", "MFU", "GiB a device"):
        assert f"<span>{name}</span>" in head


def test_every_part_of_a_memory_bar_is_in_the_legend() -> None:
    report = pipeline()
    [key] = re.findall(r'<table class="legend">.*?</table>', str(memory(report)), re.DOTALL)
    drawn = {PART_NAMES.get(part, part) for rank in report.ranks for part, size in rank.memory.needed.items() if size}
    fullest = max(report.ranks, key=lambda rank: rank.memory.total).memory.needed
    assert any(PART_NAMES.get(part, part) in drawn for part, size in fullest.items() if not size)  # a part of other ranks only
    assert all(name in key for name in drawn)


def test_hostile_names_are_escaped() -> None:
    report = pipeline()
    plan = replace(report.plan, model=replace(report.plan.model, name=EVIL), backends=(EVIL,))
    cluster = replace(plan.cluster, name=EVIL, device=replace(plan.cluster.device, name=EVIL))
    space = replace(report.space, dropped=tuple(replace(item, card=EVIL, because=EVIL) for item in report.space.dropped))
    mesh = tuple(replace(axis, link=EVIL) for axis in report.mesh)
    hostile = replace(
        report,
        plan=replace(plan, cluster=cluster),
        verdict=EVIL,
        notes=(EVIL,),
        space=space,
        mesh=mesh,
        command=(EVIL,),
        plans=(plan,),
    )
    text = plan_page(hostile)
    assert "<script>alert" not in text
    page = Reader(text)
    page.check_self_contained()
    assert "".join(page.texts["title"][:1]).startswith(EVIL)


def test_a_page_without_candidates_states_the_reason() -> None:
    text = plan_page(replace(pipeline(), space=None, no_space="no back end takes it"))
    assert "no back end takes it" in text
    assert "<h2>Funnel</h2>" not in text


def test_the_pareto_front_is_a_step_line() -> None:
    (path,) = re.findall(r'<path d="([^"]+)" class="front-line"', plan_page(pipeline()))
    assert re.fullmatch(r"M[\d.]+ -[\d.]+(H[\d.]+V-[\d.]+)+", path)


def test_the_page_has_light_dark_and_print_styles(report: PlanReport) -> None:
    text = plan_page(report)
    assert all(words in text for words in ("prefers-color-scheme: dark", "@media print", 'name="viewport"', 'lang="en"'))
