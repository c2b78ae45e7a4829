"""Comparison: two plans side by side, with all differences."""

from strategist.contract.knobs import KnobValue
from strategist.frozen import frozen


@frozen
class Difference:
    """A setting, by full name, or a part of the situation that differs; a value is None where it has no effect in that plan."""

    name: str
    first: KnobValue | None
    second: KnobValue | None


@frozen
class Figure:
    """A predicted figure of both plans, by its name in the estimate, with the estimate's unit; None where unknown."""

    name: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """The second value over the first; None where one is unknown or the first is 0."""
        return self.second / self.first if self.first and self.second is not None else None


@frozen
class Comparison:
    """Two plans by id, and their differences.

    situation: differing inputs, where the plans answer different requests. settings: differing settings. memory, time: parts of
        peak memory and step time that either plan has. cards: cards that gave a reason in only one of the plans.
    """

    first: str
    second: str
    situation: tuple[Difference, ...]
    settings: tuple[Difference, ...]
    figures: tuple[Figure, ...]
    memory: tuple[Figure, ...]
    time: tuple[Figure, ...]
    cards: tuple[Difference, ...]
