"""Settings of a candidate by vocabulary name, as the search sees them, and the distance between two candidates."""

from collections.abc import Mapping

from strategist.contract.knobs import KnobValue
from strategist.contract.layout import DEGREES

Settings = Mapping[str, KnobValue]
"""Values by vocabulary name."""

SAMPLERS = ("surrogate", "order", "random", "grid", "tpe", "nsga2", "gp")
"""What proposes trials: surrogate over what the cost model leaves unexplained; the cost model's order; chance; every value in turn;
three of Optuna's."""


def distance(left: Settings, right: Settings) -> int:
    """The number of settings that differ."""
    return sum(left[name] != right[name] for name in left)


def degrees(of: Settings) -> tuple[KnobValue, ...]:
    """The group of layouts that the settings belong to: all that differ in the order of their axes at most."""
    return tuple(of[f"layout.{name}"] for name in DEGREES)
