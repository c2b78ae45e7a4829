"""Arithmetic on intervals of time: pairs of begin and end."""

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points in time as disjoint intervals, sorted."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def subtract(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """The points in time of ``intervals`` that lie in none of ``removed``."""
    left: list[Interval] = []
    cuts = union(removed)
    first = 0
    for begin, end in union(intervals):
        while first < len(cuts) and cuts[first][1] <= begin:
            first += 1
        for cut_begin, cut_end in cuts[first:]:
            if cut_begin >= end:
                break
            if cut_begin > begin:
                left.append((begin, cut_begin))
            begin = max(begin, cut_end)
        if begin < end:
            left.append((begin, end))
    return left


def length(intervals: Iterable[Interval]) -> int:
    """The time that disjoint intervals cover."""
    return sum(end - begin for begin, end in intervals)
