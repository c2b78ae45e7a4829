"""Progress of a study in the units of a plot: each trial's value of an objective, and the best so far."""

from collections.abc import Callable, Iterator, Sequence

from strategist.contract.study import StudyTrial, TrialResult
from strategist.report.goals import figure
from strategist.units import GIB

UNITS: dict[str, tuple[str, float]] = {
    "throughput": ("tokens/s", 1.0), "memory": ("peak memory, GiB", GIB), "cost": ("$ a million tokens", 1.0),
    "energy": ("kWh a million tokens", 3.6e6),
}  # fmt: skip
"""Label of the axis of each objective, and the size of its unit."""


def plotted_value(objective: str, trial: TrialResult) -> float:
    """A trial's value of an objective, in the unit of the axis."""
    return (figure(objective, trial) or 0.0) / UNITS[objective][1]


def best_so_far(measured_trials: Sequence[StudyTrial], objective: str, trials: int) -> Iterator[tuple[float, float]]:
    """Corners of the best-so-far curve; trials that violate a constraint are never the best."""
    better: Callable[..., float] = max if objective == "throughput" else min
    best: float | None = None
    for trial in measured_trials:
        if trial.misses:
            continue
        if best is not None:
            yield trial.number, best
        best = plotted_value(objective, trial) if best is None else better(best, plotted_value(objective, trial))
        yield trial.number, best
    if best is not None:
        yield trials, best
