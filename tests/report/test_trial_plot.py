"""Trials as points, with a line among them."""

import re

from strategist.report.log_axis import axis_of
from strategist.report.trial_plot import Dot, plane


def test_points_lie_inside_and_the_line_meets_those_ahead() -> None:
    values = ((10_000.0, 10.4), (26_000.0, 25.3), (12_000.0, 14.0))
    dots = [Dot(across=x, up=y, text=f"trial <{x}>", ahead=y != 14.0) for x, y in values]
    svg = plane(dots, [values[0], values[1]], "the front", "tokens/s", "GiB")
    circles = re.findall(r'<circle cx="([-0-9.]+)" cy="([-0-9.]+)" r="([0-9.]+)"', svg)
    assert [radius for *_, radius in circles] == ["3.4", "3.4", "2.6"]
    line = re.search(r'<path d="M([^"]+)" fill="none" stroke="#0b6e4f"', svg)
    assert line is not None
    assert line[1] == "L".join(f"{x} {y}" for x, y, _ in circles[:2])
    assert "&lt;10000.0&gt;" in svg
    assert svg.count("<svg") == svg.count("</svg>") == 1


def test_values_near_each_other_have_ticks() -> None:
    for low, high in ((10.4, 25.3), (99.0, 101.0), (0.2, 0.21), (1.0, 1e7), (5.0, 5.0)):
        axis = axis_of([low, high], 100.0, 1.05)
        ticks = axis.even_ticks()
        assert 3 <= len(ticks) <= 12
        assert all(0 <= axis.at(tick) <= 100 for tick in ticks)
