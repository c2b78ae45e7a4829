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

FATAL_FINDINGS = {"python", "ports", "shared-memory", "file-limit"}
FATAL_FOR_RUNTIME = {"torch-broken", "torch-old", "gloo-missing", "interface"}
FATAL_ON_DEVICES = {"driver", "torch-cpu", "driver-old", "cuda-unavailable", "nccl-missing"}
"""Errors of the doctor that fail every trial: of any trainer, of the built-in one, and of the built-in one on devices."""

MIN_DISK_BYTES = 64 * MIB
"""Disk space for the logs and records of a trial."""


@cache
def require_ready(kind: str, *, own_runtime: bool) -> None:
    """Checks this machine, once per process.

    Raises:
        InputError: trials on devices of this ``kind``, by the built-in trainer (``own_runtime``) or another one, cannot run here.
    """
    stops = (
        FATAL_FINDINGS
        | (FATAL_FOR_RUNTIME if own_runtime else set())
        | (FATAL_ON_DEVICES if own_runtime and kind != "cpu" else set())
    )
    for finding in findings(examine(Path.cwd(), torch=own_runtime)):
        if finding.level is Level.ERROR and finding.code in stops:
            raise InputError("this machine", finding.message, finding.do)


def require_memory(ranks: int, each_bytes: int) -> None:
    """Raises InputError if this machine, even when idle, has too little memory to start the ranks."""
    if ranks * each_bytes > host_memory_bytes() - floor_bytes():
        law = f"need {show_bytes(ranks * each_bytes)} of memory to start, this machine has {show_bytes(host_memory_bytes())}"
        raise InputError(f"{ranks} ranks", law, "plan for what it has: --gpus local")


def require_room(folder: Path) -> None:
    """Raises FileError if a trial's folder has too little disk space or is not writable."""
    if (free := shutil.disk_usage(folder).free) < MIN_DISK_BYTES:
        raise FileError(
            folder, f"has {show_bytes(free)} of disk left, and a trial writes logs; make room, or choose another folder"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(folder, "cannot be written: Permission denied; choose another folder")
