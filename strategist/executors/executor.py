"""Executor interface: turns a plan into a measurement, whatever fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from strategist.contract.measurement import Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress

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
