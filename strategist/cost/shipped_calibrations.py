"""Shipped calibrations: factors fitted to published runs, by software stack."""

from dataclasses import field, replace
from functools import cache

from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.frozen import frozen
from strategist.paths import data_dir

ANY_STACK = "any"
PUBLISHED_NATIVE = "torchtitan"
"""The stack whose published runs represent the native stack: torchtitan, which uses torch's own parallel APIs as a plan does."""


@frozen
class FittedTo:
    """Factors of one software stack with standard errors, the ``rows`` and ``devices`` that they were fitted to, and the
    residual ``noise``: the standard deviation of the logarithm of measured over predicted steps.
    """

    stack: str
    devices: tuple[str, ...]
    calibration: Calibration
    errors: dict[str, float]
    noise: float
    rows: int


@frozen
class Shipped:
    """All shipped calibrations.

    source: the data that they were fitted to, and the command that repeats the fit.
    memory_spreads: standard deviation of log(measured / predicted memory), by stack, by family, and for any stack.
    step_ranges: 90 % interval of measured over predicted steps of sources that no fit had seen, by family, and for any stack.
    """

    source: str
    fits: tuple[FittedTo, ...] = ()
    memory_spreads: dict[str, float] = field(default_factory=dict)
    step_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


@cache
def shipped() -> Shipped:
    """The calibrations in ``profiles/calibrations.json``."""
    path = data_dir("profiles") / "calibrations.json"
    return codec.load(Shipped, path) if path.exists() else Shipped(source="none")


def shipped_for(stack: Stack, fits: Shipped | None = None) -> FittedTo | None:
    """The fit of a stack, else of its family, else of all stacks; None if there is none."""
    by_stack = {item.stack: item for item in (fits or shipped()).fits}
    return next((by_stack[name] for name in _names(stack) if name in by_stack), None)


def family_name(family: str) -> str:
    """The name of the common factors of a family."""
    return f"any {family}"


def factors(measured: Calibration | None, cluster: Cluster, stack: Stack | None = None) -> Calibration:
    """The measured calibration, if there is one; else the shipped calibration of the stack on GPUs (without a stack, of torch's
    own parallel APIs).
    """
    if measured is not None:
        return measured
    calibration = _shipped_calibration(stack or NATIVE)
    return calibration if cluster.device.kind == "cuda" else replace(NEUTRAL, memory_spread=calibration.memory_spread)


def unseen_devices(cluster: Cluster) -> tuple[str, ...]:
    """Names of a cluster's GPUs of which no shipped fit has seen a published step."""
    seen = {name for item in shipped().fits for name in item.devices}
    devices = [group.device for group in cluster.groups] or [cluster.device]
    return tuple(sorted({device.name for device in devices if device.kind == "cuda"} - seen))


@cache
def _shipped_calibration(stack: Stack) -> Calibration:
    """One cached object per stack, so that its digest is computed once."""
    return calibration_for(stack)


def calibration_for(stack: Stack, fits: Shipped | None = None) -> Calibration:
    """The shipped factors of a stack (neutral without any) and its memory spread; ``fits`` replace the shipped ones."""
    available = fits or shipped()
    fit, spreads = shipped_for(stack, available), available.memory_spreads
    base, ranges = fit.calibration if fit else NEUTRAL, available.step_ranges
    spread = next((spreads[name] for name in _names(stack) if name in spreads), base.memory_spread)
    low, high = next((ranges[name] for name in _names(stack) if name in ranges), NEUTRAL.step_range)
    return replace(base, memory_spread=spread, step_range=(low, high))


def _names(stack: Stack) -> tuple[str, ...]:
    published = PUBLISHED_NATIVE if stack.name == NATIVE.name else stack.measured_as
    return stack.name, *((published,) if published else ()), family_name(stack.family), ANY_STACK
