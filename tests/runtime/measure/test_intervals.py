"""Sets of time intervals, against counting points one by one."""

from hypothesis import given, strategies as st
from strategist_runtime.measure.intervals import length, subtract, union

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=8)


def points(found):
    return {point for begin, end in found for point in range(begin, end)}


@given(intervals)
def test_a_union_covers_the_same_points_once(found):
    assert points(union(found)) == points(found)
    assert length(union(found)) == len(points(found))


@given(intervals, intervals)
def test_subtract_removes_the_points_of_the_second_set(first, second):
    difference = subtract(first, second)
    assert points(difference) == points(first) - points(second)
    assert length(difference) == len(points(difference))
