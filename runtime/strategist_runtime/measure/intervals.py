"""Arithmetic on time intervals: pairs of begin and end."""

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union as disjoint intervals, sorted."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def subtract(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """The parts of ``intervals`` that are in none of ``removed``, disjoint and sorted."""
    remaining: list[Interval] = []
    cuts = union(removed)
    first = 0
    for begin, end in union(intervals):
        while first < len(cuts) and cuts[first][1] <= begin:
            first += 1
        cut = first
        while cut < len(cuts) and cuts[cut][0] < end:
            if cuts[cut][0] > begin:
                remaining.append((begin, cuts[cut][0]))
            begin = max(begin, cuts[cut][1])
            cut += 1
        if begin < end:
            remaining.append((begin, end))
    return remaining


def intersect(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """The parts that are in both, disjoint and sorted."""
    whole = union(intervals)
    return subtract(whole, subtract(whole, others))


def length(intervals: Iterable[Interval]) -> int:
    """The total length of disjoint intervals."""
    return sum(end - begin for begin, end in intervals)


class RemainingTime:
    """Partitions an interval: each part takes intervals that no earlier part has taken, so the parts and the rest add up to the
    whole.
    """

    def __init__(self, whole: Interval) -> None:
        self.intervals = [whole]

    def take(self, intervals: Iterable[Interval]) -> list[Interval]:
        """Takes, and returns, the parts of ``intervals`` that are not taken yet."""
        remaining = subtract(self.intervals, intervals)
        taken = subtract(self.intervals, remaining)
        self.intervals = remaining
        return taken
