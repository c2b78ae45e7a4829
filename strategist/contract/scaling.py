"""Scaling: one plan measured on more and more devices."""

from dataclasses import dataclass

from strategist.contract.measurement import Outcome

SCALINGS = ("strong", "weak")
"""The same global batch on every count, or one that grows with it."""


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One count of devices. ``how`` its plan was made: ``as given``, ``data axis`` (the degrees of data parallelism follow the
    count) or ``planned anew``. ``efficiency`` is its tokens/s a device over that of the smallest count that ran; figures are None
    where the trial did not end well, and ``message`` says why."""

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


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """All counts, smallest first; ``notes`` say what has to be known to read them."""

    plan_id: str
    scaling: str
    points: tuple[ScalingPoint, ...]
    notes: tuple[str, ...] = ()
