"""Executor interface: turns a plan into a measurement, whatever fails."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from strategist.contract.measurement import Measurement, TrialSettings
from strategist.contract.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a running trial is: the phase of the rank that is furthest behind, the last step that rank 0 finished, and what the
    latest steps after warm-up took. ``latest`` are figures of rank 0 by name: loss, grad_norm, evaluation_loss, the seconds of the
    step, memory_bytes of its device."""

    phase: str
    step: int | None
    elapsed_seconds: float
    step_seconds: tuple[float, ...] = ()
    latest: dict[str, float] = field(default_factory=dict)


OnEvent = Callable[[Progress], None]
"""Called at every move and at least once a second, so a lease can be renewed in it; what it raises ends the trial."""


class Executor(Protocol):
    """Runs plans. One trial at a time per call; calls do not share anything but the machine."""

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs ``plan`` and leaves what it wrote in ``folder``; when this returns or raises, no process of the trial is left.

        Raises:
            InputError: this machine can never run the plan.
            FileError: ``folder`` cannot be written.
        """
        ...

    def preflight(self, plan: Plan) -> None:
        """What would fail every attempt at the plan is said before the first.

        Raises:
            InputError: this machine can never run it.
        """
        ...
