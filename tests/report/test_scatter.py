"""Where the points of a scatter plot stand."""

import re

from strategist.report.scatter import SIDE, Point, scatter


def places(*values: tuple[float, float]) -> list[tuple[float, float]]:
    """Right and up of each point of (published, predicted)."""
    svg = scatter([Point(published=x, predicted=y, text="") for x, y in values], "name", "s")
    return [(float(x), -float(y)) for x, y in re.findall(r'<circle cx="([-0-9.]+)" cy="([-0-9.]+)"', svg)]


def test_equal_values_stand_on_the_diagonal_and_too_slow_ones_above() -> None:
    equal, slow, fast = places((1, 1), (10, 20), (100, 10))
    assert equal[0] == equal[1]
    assert slow[1] > slow[0]
    assert fast[1] < fast[0]


def test_equal_ratios_are_equal_distances() -> None:
    one, ten, hundred = places((1, 1), (10, 10), (100, 100))
    assert abs((ten[0] - one[0]) - (hundred[0] - ten[0])) <= 0.2


def test_all_points_stand_inside_even_where_there_is_no_logarithm() -> None:
    for x, y in (*places((0.001, 5000.0), (3.0, 0.0)), *places((0.0, 0.0)), *places((7.0, 7.0))):
        assert 0 <= x <= SIDE
        assert 0 <= y <= SIDE


def test_ticks_are_round_and_few() -> None:
    for low, high in ((1.0, 2.0), (0.3, 40.0), (1e-3, 1e9)):
        svg = scatter([Point(published=low, predicted=high, text="")], "name", "s")
        ticks = [float(text) for text in re.findall(r'text-anchor="middle">([^<]+)<', svg)]
        assert 1 <= len(ticks) <= 8
        assert all(f"{tick:.0e}"[0] in "125" for tick in ticks)
