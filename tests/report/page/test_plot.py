"""Positions of marks and lines in plots, and plots as SVG files."""

import re
from xml.etree import ElementTree

from strategist.report.page.html import Html
from strategist.report.page.plot import HEIGHT, WIDTH, Mark, diagonal, equal_scale, line, plot, scale_of
from strategist.report.page.svg_file import MADE_BY, svg_file


def places(*values: tuple[float, float]) -> list[tuple[float, float]]:
    """Position of each mark of (published, predicted), as shares of both axes."""
    scale = equal_scale([value for pair in values for value in pair], ("published", "predicted"), str)
    picture = plot("name", scale, [Mark(x=x, y=y, text="") for x, y in values])
    return [(float(x) / WIDTH, -float(y) / HEIGHT) for x, y in re.findall(r'<circle cx="([-0-9.]+)" cy="([-0-9.]+)"', picture)]


def test_equal_values_lie_on_the_diagonal_and_overestimates_above() -> None:
    equal, slow, fast = places((1, 1), (10, 20), (100, 10))
    assert abs(equal[0] - equal[1]) < 1e-3
    assert slow[1] > slow[0]
    assert fast[1] < fast[0]


def test_equal_ratios_are_equal_distances() -> None:
    one, ten, hundred = places((1, 1), (10, 10), (100, 100))
    assert abs((ten[0] - one[0]) - (hundred[0] - ten[0])) <= 1e-3


def test_the_diagonal_has_a_band_on_request() -> None:
    scale = equal_scale([1.0, 10.0], ("published", "predicted"), str)
    assert diagonal(scale).count("<path") == 1
    band, equal = re.findall(r'<path d="M([^"]+)"', diagonal(scale, 0.2))
    assert len(band.split("L")) == 6
    assert equal.split("L")[0] == f"0.0 {-scale.y.at(scale.x.low):.1f}"


def test_an_svg_file_has_a_style_marks_and_a_line_through_the_front() -> None:
    values = ((10_000.0, 10.4), (26_000.0, 25.3), (12_000.0, 14.0))
    dots = [Mark(x=x, y=y, text=f"trial <{x}>", css_class="fits" if y == 14.0 else "front") for x, y in values]
    scale = scale_of(dots, "tokens/s", "GiB", (str, str))
    svg = svg_file(plot("the front", scale, dots, under=[line(scale, values[:2], "front-line")]))
    assert MADE_BY in svg
    root = ElementTree.fromstring(svg)
    circles = root.findall(".//{*}circle")
    assert [circle.get("class") for circle in circles] == ["dot front", "dot front", "dot fits"]
    (path,) = (found for found in root.findall(".//{*}path") if found.get("class") == "front-line")
    ends = [tuple(map(float, end.split())) for end in (path.get("d") or "")[1:].split("L")]
    for (x, y), circle in zip(ends, circles, strict=False):
        assert abs(x - float(circle.get("cx") or 0)) < 0.1
        assert abs(y - float(circle.get("cy") or 0)) < 0.1
    assert "&lt;10000.0&gt;" in svg


def test_a_line_without_points_is_empty() -> None:
    assert line(equal_scale([1.0, 2.0], ("a", "b"), str), [], "front-line") == Html()
