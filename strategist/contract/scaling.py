"""Scaling: one plan measured on increasing numbers of devices."""

from strategist.contract.measurement import Outcome
from strategist.frozen import frozen


@frozen
class ScalingPoint:
    """Measurement on one number of devices.

    how: origin of its plan: ``as given``, ``data axis`` (data-parallel degrees follow the number of devices), or ``planned anew``.
    efficiency: tokens/s per device over that of the smallest number of devices that ran.
    message: the reason where the trial failed; figures are then None.
    """

    devices: int
    how: str
    plan_id: str
    layout: str
    global_batch: int
    outcome: Outcome
    predicted_tokens_per_second: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    step_seconds_spread: float | None = None
    exposed_comm_ratio: float | None = None
    efficiency: float | None = None
    message: str = ""


@frozen
class Scaling:
    """Measurements by number of devices, smallest first. ``notes`` help to interpret them.

    scaling: ``strong``, with the same global batch on every number of devices, or ``weak``, with one that grows with the number.
    """

    plan_id: str
    scaling: str
    points: tuple[ScalingPoint, ...]
    notes: tuple[str, ...] = ()
