"""Comparison: two plans side by side, with every difference."""

from dataclasses import dataclass

from strategist.contract.knobs import KnobValue


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting, by its full name, or something of the situation; None where it changes nothing in a plan."""

    name: str
    first: KnobValue | None
    second: KnobValue | None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A predicted figure of both, by its name in the estimate, with the unit there; None where it is not known."""

    name: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """The second as a multiple of the first."""
        return self.second / self.first if self.first and self.second is not None else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """``first`` and ``second`` are the plans' ids. ``situation`` says where they answer different questions, ``settings`` what was
    decided otherwise; ``memory`` and ``time`` have the parts of peak and step that either has. ``cards`` are those whose words only
    one of the plans carries."""

    first: str
    second: str
    situation: tuple[Difference, ...]
    settings: tuple[Difference, ...]
    figures: tuple[Figure, ...]
    memory: tuple[Figure, ...]
    time: tuple[Figure, ...]
    cards: tuple[Difference, ...]
