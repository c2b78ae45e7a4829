"""Machine profile: measures this machine with one rank per device, launched and supervised like a trial."""

import os
import sys
import tempfile
from pathlib import Path

from strategist.contract import codec
from strategist.contract.machine import MachineRecord
from strategist.contract.measurement import TrialSettings
from strategist.errors import InputError
from strategist.executors import processes
from strategist.executors.engine import torchrun
from strategist.executors.executor import OnEvent
from strategist.executors.local import LOOPBACK, OWN_STORE, shortage, trial_environment
from strategist.executors.requirements import require_supervision, require_torch
from strategist.executors.trial_process import TrialCommand, supervise
from strategist.executors.trial_records import log_tail

SETTINGS = TrialSettings(init_timeout_seconds=180.0, step_timeout_seconds=120.0, wall_timeout_seconds=600.0)
"""Deadlines: to import torch on a loaded machine, for one kind of measurement, and for all of them."""


def measure_machine(kind: str, ranks: int, on_event: OnEvent | None = None) -> MachineRecord:
    """Measurements of ``ranks`` processes, each on its own device.

    Raises:
        InputError: no Linux, no torch, too little memory for the ranks, or a failed measurement, with its reason.
    """
    require_supervision()
    require_torch()
    if (missing := shortage(ranks)) is not None:
        raise InputError(f"{ranks} ranks on {kind}", missing, "measure with fewer: --ranks N")
    with tempfile.TemporaryDirectory(prefix="strategist-profile-") as name:
        folder = Path(name)
        supervisor = (sys.executable, "-m", "strategist.executors.process_supervisor", "rank", str(folder))
        program = (sys.executable, "-m", "strategist_runtime.machine.profile", "--out", str(folder), "--device", kind)
        command = TrialCommand(
            words=(*torchrun(ranks), *supervisor, *program),
            environment={**LOOPBACK, **trial_environment(os.environ), **OWN_STORE},
            tag=processes.new_tag("profile"),
            ranks=ranks,
        )
        ending = supervise(command, folder, SETTINGS, on_event)
        if ending.exit_code == 0 and (folder / "machine.json").exists():
            return codec.load(MachineRecord, folder / "machine.json")
        log_lines = [line for line in log_tail(folder, f"rank-{ending.straggler}").splitlines() if line.strip()]
        raise InputError(
            f"{ranks} ranks on {kind}",
            f"did not finish ({log_lines[-1] if log_lines else ending.exit_code})",
            "see strategist doctor",
        )
