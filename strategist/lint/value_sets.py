"""Sets of values that a term of an expression can have: choices, or intervals of numbers; possibly also unknown."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from strategist.expr.vocabulary import BOOL, CATEGORY, INT, Name

INFINITY = math.inf


class Span(NamedTuple):
    """Interval of numbers from ``low`` to ``high``; an open end is not part of it."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False

    @property
    def empty(self) -> bool:
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def meet(self, other: "Span") -> "Span":
        """Intersection of two intervals."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        high, closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        return Span(low, high, low_open, not closed)


NUMBERS = (Span(-INFINITY, INFINITY),)


@dataclass(frozen=True)
class Domain:
    """A set of values.

    spans: intervals of numbers; None if the values are ``choices``.
    integral: whole numbers only.
    unknown: whether unknown is one of the values.
    """

    spans: tuple[Span, ...] | None = None
    choices: frozenset[tuple[str, Any]] = frozenset()
    integral: bool = False
    unknown: bool = False

    @property
    def empty(self) -> bool:
        """Whether the set has no values, not even unknown."""
        return not self.unknown and not self.spans and not self.choices

    def meet(self, other: "Domain") -> "Domain":
        """Intersection of two sets of the same term."""
        unknown = self.unknown and other.unknown
        if self.spans is None or other.spans is None:
            return Domain(choices=self.choices & other.choices, unknown=unknown)
        spans = (_whole_bounds(left.meet(right), self.integral) for left in self.spans for right in other.spans)
        return Domain(spans=tuple(span for span in spans if not span.empty), integral=self.integral, unknown=unknown)

    def with_unknown(self) -> "Domain":
        """The same set with unknown added."""
        return Domain(spans=self.spans, choices=self.choices, integral=self.integral, unknown=True)

    def within(self, values: Iterable[Any]) -> bool:
        """Whether all its known values are among ``values``."""
        listed = {typed_value(value) for value in values}
        if self.spans is None:
            return self.choices <= listed
        return all(span.low == span.high and typed_value(_as_int_if_whole(span.low)) in listed for span in self.spans)

    def samples(self) -> tuple[Any, ...]:
        """Some of its values: all choices; of each interval its ends, or values just inside of them."""
        if self.spans is None:
            return tuple(value for _, value in sorted(self.choices, key=str))
        found = [value for span in self.spans for value in _sample_values(span, self.integral)]
        return tuple(dict.fromkeys(found))


def typed_value(value: Any) -> tuple[str, Any]:
    """The value with its kind, so that 1 differs from True."""
    kind = type(value).__name__ if isinstance(value, bool | str) else "number"
    return kind, value


def universe(entry: Name) -> Domain:
    """All values that a name of the vocabulary can have."""
    if entry.kind == CATEGORY:
        return choice_domain(entry.choices)
    if entry.kind == BOOL:
        return choice_domain((True, False))
    low = -INFINITY if entry.low is None else entry.low
    high = INFINITY if entry.high is None else entry.high
    return Domain(spans=(Span(low, high),), integral=entry.kind == INT and entry.unit == "count")


def choice_domain(values: Iterable[Any]) -> Domain:
    """The set of these choices."""
    return Domain(choices=frozenset(map(typed_value, values)))


def comparison_spans(operator: str, number: float) -> tuple[Span, ...]:
    """The numbers x for which ``x operator number`` is true."""
    below, above = Span(-INFINITY, number, False, True), Span(number, INFINITY, True, False)
    return {
        "<": (below,),
        "<=": (Span(-INFINITY, number),),
        ">": (above,),
        ">=": (Span(number, INFINITY),),
        "==": (Span(number, number),),
        "!=": (below, above),
    }[operator]


def spans_without(numbers: Iterable[float]) -> tuple[Span, ...]:
    """All numbers except these."""
    spans: tuple[Span, ...] = NUMBERS
    for number in numbers:
        spans = tuple(part for span in spans for gap in comparison_spans("!=", number) if not (part := span.meet(gap)).empty)
    return spans


def _whole_bounds(span: Span, integral: bool) -> Span:
    """The interval with the same whole numbers and closed ends; unchanged unless ``integral``."""
    if not integral or span.empty:
        return span
    low = math.floor(span.low) + 1 if span.low_open and span.low > -INFINITY else span.low
    high = math.ceil(span.high) - 1 if span.high_open and span.high < INFINITY else span.high
    return Span(low if low == -INFINITY else math.ceil(low), high if high == INFINITY else math.floor(high))


def _sample_values(span: Span, integral: bool) -> list[Any]:
    step = 1.0 if integral else max(abs(span.low) if span.low > -INFINITY else abs(span.high), 1e-3) / 64
    low = span.low + (step if span.low_open else 0)
    high = span.high - (step if span.high_open else 0)
    found = [value for value in (low, high) if abs(value) < INFINITY]
    if span.high == INFINITY and span.low > -INFINITY:
        found.append(max(low * 2, low + step))
    elif abs(span.low) < INFINITY and span.low < span.high:
        found.append(math.floor((low + high) / 2) if integral else (low + high) / 2)
    return [_as_int_if_whole(value) for value in found if span.low <= value <= span.high]


def _as_int_if_whole(value: float) -> float | int:
    return int(value) if value == int(value) else value
