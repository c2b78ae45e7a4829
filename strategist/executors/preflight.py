"""Preflight: findings of the doctor that would fail every trial, reported before the first one."""

import os
import shutil
from functools import cache
from pathlib import Path

from strategist.contract.diagnostic import Level
from strategist.errors import FileError, InputError
from strategist.executors.doctor import findings
from strategist.executors.host_memory import floor_bytes
from strategist.executors.machine_facts import examine
from strategist.profiles.local_machine import host_memory_bytes
from strategist.units import MIB, show_bytes

STOPS = {"python", "ports", "shared-memory", "file-limit"}
STOPS_OURS = {"torch-broken", "torch-old", "gloo-missing", "interface"}
STOPS_ON_DEVICES = {"driver", "torch-cpu", "driver-old", "cuda-unavailable", "nccl-missing"}
"""Errors of the doctor that no trial survives: of any trainer, of our own, and of our own on devices."""

LEAST_DISK_BYTES = 64 * MIB
"""Room for the logs and records of a trial."""


@cache
def require_ready(kind: str, *, ours: bool) -> None:
    """Looks at this machine once a process.

    Raises:
        InputError: trials on devices of this ``kind``, by our trainer or by another one, cannot run here.
    """
    stops = STOPS | (STOPS_OURS if ours else set()) | (STOPS_ON_DEVICES if ours and kind != "cpu" else set())
    for finding in findings(examine(Path.cwd(), torch=ours)):
        if finding.level is Level.ERROR and finding.code in stops:
            raise InputError("this machine", finding.message, finding.do)


def require_memory(ranks: int, each_bytes: int) -> None:
    """Raises InputError where so many ranks could not even start on this machine when it is idle."""
    if ranks * each_bytes > host_memory_bytes() - floor_bytes():
        law = f"need {show_bytes(ranks * each_bytes)} of memory to start, this machine has {show_bytes(host_memory_bytes())}"
        raise InputError(f"{ranks} ranks", law, "plan for what it has: --gpus local")


def require_room(folder: Path) -> None:
    """Raises FileError where a trial's folder has no room for its files, or takes none."""
    if (free := shutil.disk_usage(folder).free) < LEAST_DISK_BYTES:
        raise FileError(
            folder, f"has {show_bytes(free)} of disk left, and a trial writes logs; make room, or choose another folder"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(folder, "cannot be written: Permission denied; choose another folder")
