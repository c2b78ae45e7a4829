"""Settings of a candidate by vocabulary name, and the distance between two candidates."""

from collections.abc import Mapping

from strategist.contract.knobs import KnobValue
from strategist.contract.layout import DEGREES

Settings = Mapping[str, KnobValue]
"""Values by vocabulary name."""

SAMPLERS = ("surrogate", "order", "random", "grid", "tpe", "nsga2", "gp")
"""Names of the samplers: ``surrogate`` models the residuals of the cost model; ``order`` takes the cost model's order;
``random`` and ``grid``; and Optuna's ``tpe``, ``nsga2`` and ``gp``.
"""


def distance(left: Settings, right: Settings) -> int:
    """Number of settings that differ."""
    return sum(left[name] != right[name] for name in left)


def degrees(settings: Settings) -> tuple[KnobValue, ...]:
    """Parallel degrees of the settings: equal for layouts that differ only in the order of their axes."""
    return tuple(settings[f"layout.{name}"] for name in DEGREES)
