"""Executor interface: turns a plan into a measurement, also when the trial fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from strategist.contract.measurement import Kind, Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.frozen import frozen

OnEvent = Callable[[Progress], None]
"""Called at every progress and at least once a second, so that it can renew a lease; an exception from it ends the trial."""


class Executor(Protocol):
    """Runs plans as trials, one per call. Concurrent calls share nothing but the machine."""

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs ``plan`` as a trial with its files in ``folder``. When this returns or raises, no process of the trial is left.

        Raises:
            InputError: this machine can never run the plan.
            FileError: ``folder`` cannot be written.
        """
        ...

    def preflight(self, plan: Plan) -> None:
        """Raises an error for anything that would fail every trial of the plan.

        Raises:
            InputError: this machine can never run the plan.
        """
        ...


@frozen
class TrialRunner:
    """How the trials of a study are run.

    kind: kind of the executor's measurements, equal for all trials of a study. Plans that were only simulated do not count as
        trials.
    program: digest of the program's description if an external program trains; otherwise empty.
    """

    executor: Executor
    settings: TrialSettings
    kind: Kind = Kind.REAL
    program: str = ""
