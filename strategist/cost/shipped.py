"""Shipped calibrations: factors fitted to published runs, by software stack and device."""

from dataclasses import dataclass, field, replace
from functools import cache

from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.contract.stack import TORCH, Stack
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.paths import data_dir

ANY_STACK = "any"
NATIVE = replace(TORCH, name="torchtitan")
"""Whose published runs stand for a plan: torchtitan's, which uses torch's own parallel APIs as a plan does and nothing else."""


@dataclass(frozen=True, kw_only=True)
class FittedTo:
    """Factors of one software stack on one device, with their standard errors, the rows that they come from and the ``noise`` left:
    the spread of the logarithm of measured over predicted steps, and of memory."""

    stack: str
    device: str
    calibration: Calibration
    errors: dict[str, float]
    noise: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """All of them; ``source`` says what they were fitted to and how to fit them again. ``memory_spreads`` are those of measured
    memory around the prediction, by stack, by kin, and for any."""

    source: str
    fits: tuple[FittedTo, ...] = ()
    memory_spreads: dict[str, float] = field(default_factory=dict)


@cache
def shipped() -> Shipped:
    """The file in ``profiles``."""
    path = data_dir("profiles") / "calibrations.json"
    return codec.load(Shipped, path) if path.exists() else Shipped(source="none")


def shipped_for(stack: Stack, device: str) -> FittedTo | None:
    """The fit of a stack on a device, else of its kin there, else of all stacks there; None where nobody measured there."""
    known = {(item.stack, item.device): item for item in shipped().fits}
    return next((known[name, device] for name in _names(stack) if (name, device) in known), None)


def kin_name(kin: str) -> str:
    """The name under which the common factors of a kin are kept."""
    return f"any {kin}"


def factors(measured: Calibration | None, cluster: Cluster, stack: Stack | None = None) -> Calibration:
    """What somebody measured on the cluster, else what was published of the stack on its device; without one, of torch's own
    parallel APIs."""
    return calibration_for(stack or NATIVE, cluster.device.name) if measured is None else measured


def calibration_for(stack: Stack, device: str) -> Calibration:
    """Its factors, neutral ones where nobody measured there, and how far memory is spread."""
    found, spreads = shipped_for(stack, device), shipped().memory_spreads
    base = found.calibration if found else NEUTRAL
    spread = next((spreads[name] for name in _names(stack) if name in spreads), base.memory_spread)
    return replace(base, memory_spread=spread)


def _names(stack: Stack) -> tuple[str, str, str]:
    return stack.name, kin_name(stack.kin), ANY_STACK
