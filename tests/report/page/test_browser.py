"""The report page in a browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser, browser, needs_browser

from strategist.contract.mesh import mesh_axes
from strategist.profiles.cluster import resolve_cluster
from strategist.report.page.plan_page import plan_page
from tests.report.page.reports import pipeline

pytestmark = [needs_browser, pytest.mark.full]

SHOWN = "return [...document.querySelectorAll('#candidates-plot [data-item]')].filter(dot => dot.getClientRects().length).length"
CHOOSE = """
const select = document.querySelector(`form[data-filters="candidates-plot"] select[name="${arguments[0]}"]`);
select.value = arguments[1];
select.dispatchEvent(new Event("change", {bubbles: true}));
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    page = folder / "report.html"
    page.write_text(plan_page(pipeline()), encoding="utf-8")
    with browser(folder) as found:
        found.screen(1100, 900)
        found.open(page)
        yield found
        assert found.console() == []


def test_every_chart_is_drawn_and_labelled(session: Browser) -> None:
    empty = session.run(
        "return [...document.querySelectorAll('svg')].filter(svg => !svg.getAttribute('aria-label')"
        " || svg.getBoundingClientRect().width < 50 || svg.getBoundingClientRect().height < 5).length"
    )
    assert empty == 0
    assert session.run("return document.querySelectorAll('svg').length") > 10
    assert session.run("return getComputedStyle(document.querySelector('.part-forward')).fill") != "rgb(0, 0, 0)"


def test_a_filter_hides_candidates_without_the_value(session: Browser) -> None:
    space = pipeline().space
    assert space is not None
    full = sum(item.candidate.knobs.recompute == "full" for item in space.seen)
    assert 0 < full < len(space.seen)
    assert session.run(SHOWN) == len(space.seen)
    session.run(CHOOSE, "recompute", "full")
    assert session.run(SHOWN) == full
    status = "return document.querySelector('form[data-filters=\"candidates-plot\"] output').textContent"
    assert session.run(status) == f"{full} of {len(space.seen)} shown"
    session.run("document.querySelector('form[data-filters=\"candidates-plot\"] button').click()")
    session.run("return new Promise(done => setTimeout(done))")
    assert session.run(SHOWN) == len(space.seen)


def test_hovering_over_a_shape_shows_its_description(session: Browser) -> None:
    session.run("document.querySelector('svg.timeline').scrollIntoView({block: 'center'})")
    session.point("svg.timeline rect.part-forward")
    tip = session.run("const tip = document.querySelector('.tip'); return tip.hidden ? '' : tip.textContent")
    assert tip.startswith("rank 0: forward of micro-batch 0, stage 0")


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
def test_the_page_fits_narrow_screens(width: int, session: Browser) -> None:
    session.screen(width, 800)
    assert session.run("return document.documentElement.scrollWidth") == width


def test_tables_fit_the_screen_of_a_phone(session: Browser) -> None:
    session.screen(400, 800)
    outside = (
        "return [...document.querySelectorAll('.wide:not(.scroll) td')].filter(td => td.getBoundingClientRect().right > 400).length"
    )
    assert session.run(outside) == 0
    assert session.run("return getComputedStyle(document.querySelector('#why-not td'), '::before').content") == '"is"'


def test_legends_are_next_to_bars_and_text_is_legible(session: Browser) -> None:
    session.screen(1100, 900)
    box = "const box = document.querySelector(arguments[0]).getBoundingClientRect(); return [box.left, box.right];"
    assert session.run(box, "#memory table.legend")[0] > session.run(box, "#memory table.bars")[1]
    assert session.run(SMALLEST, "svg.timeline .number") >= 10
    assert session.run(SMALLEST, "svg.mesh text") >= 10


SMALLEST = """
return Math.min(...[...document.querySelectorAll(arguments[0])].map(text => {
  const svg = text.ownerSVGElement;
  return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
}));
"""


def test_text_of_a_mesh_of_64_nodes_is_legible(session: Browser, tmp_path: Path) -> None:
    cluster = resolve_cluster("64x8xH100")
    layout = replace(pipeline().plan.candidate.layout, pp=4, dp_shard=64, tp=2)
    axes = tuple(mesh_axes(layout, cluster))
    page = tmp_path / "mesh.html"
    page.write_text(plan_page(replace(pipeline(), mesh=axes, plan=replace(pipeline().plan, cluster=cluster))), encoding="utf-8")
    session.open(page)
    for width in (400, 1100):
        session.screen(width, 900)
        assert session.run(SMALLEST, "svg.mesh text") >= 10


def test_the_page_has_a_light_and_a_dark_theme(session: Browser) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    session.screen(1100, 900, dark=True)
    dark = session.run(paper)
    session.screen(1100, 900)
    assert session.run(paper) == "rgb(255, 255, 255)"
    assert dark != "rgb(255, 255, 255)"
