"""Facts about the machine and the installation for the doctor, collected without importing torch."""

import ctypes
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from strategist.errors import InputError
from strategist.frozen import frozen
from strategist.profiles.local_machine import cores, host_memory_bytes, nvidia_smi

PACKAGES = ("torch", "numpy", "optuna", "scipy", "pyyaml", "jsonschema", "rich")
TORCH_SECONDS, CONNECT_SECONDS = 120, 1.0
GPU_FIELDS = (
    "index", "name", "driver_version", "persistence_mode", "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown", "pcie.link.width.current", "pcie.link.width.max", "memory.used",
)  # fmt: skip
"""Fields that nvidia-smi is queried for, per GPU (nvidia-smi --help-query-gpu)."""

PORT = 29500
"""torchrun's default port."""

ADJTIMEX_ERROR = 5  # TIME_ERROR, the return value of adjtimex(2) if the clock is not synchronised


@frozen
class MachineFacts:
    """Facts about this machine. None means unknown. Sizes are in bytes; a limit of -1 means unlimited.

    torch: what torch reports about itself; if it reports nothing, ``torch_error`` is the reason.
    gpus: nvidia-smi's values by field, for each GPU; if it fails, ``smi_error`` is the reason.
    """

    system: str
    python: tuple[int, int]
    packages: Mapping[str, str]
    environment: Mapping[str, str]
    cores: int
    memory_bytes: int
    folder: str
    torch: Mapping[str, Any] | None = None
    torch_error: str = ""
    gpus: tuple[Mapping[str, str], ...] = ()
    smi_error: str = ""
    interfaces: tuple[str, ...] = ()
    hostname_resolves: bool = True
    shared_memory_bytes: int | None = None
    file_limit: int | None = None
    locked_memory_limit: int | None = None
    infiniband: bool = False
    can_listen: bool = True
    port_is_free: bool = True
    clock_synchronised: bool | None = None
    disk_free_bytes: int | None = None
    memory_limit_bytes: int | None = None
    core_quota: float | None = None
    numa_nodes: int = 1


def examine(folder: Path, *, torch: bool = True) -> MachineFacts:
    """Facts about this machine, with the disk space of ``folder``. With ``torch``, torch is queried, too, which takes 1 to 2 s."""
    torch_facts, torch_error = _torch() if torch else (None, "")
    gpus, smi_error = _gpus()
    return MachineFacts(
        system=sys.platform,
        python=sys.version_info[:2],
        packages={name: found for name in PACKAGES if (found := _version(name))},
        environment=dict(os.environ),
        cores=cores(),
        memory_bytes=host_memory_bytes(),
        folder=str(folder),
        torch=torch_facts,
        torch_error=torch_error,
        gpus=gpus,
        smi_error=smi_error,
        interfaces=tuple(name for _, name in socket.if_nameindex()),
        hostname_resolves=_resolves(),
        shared_memory_bytes=_free_bytes("/dev/shm"),
        file_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        locked_memory_limit=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        infiniband=any(Path("/sys/class/infiniband").glob("*")),
        can_listen=_can_listen(0, CONNECT_SECONDS),
        port_is_free=_can_listen(PORT),
        clock_synchronised=_clock_is_synchronised(),
        disk_free_bytes=_free_bytes(str(folder)),
        memory_limit_bytes=_cgroup_limit("/sys/fs/cgroup/memory.max"),
        core_quota=_core_quota(),
        numa_nodes=len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _torch() -> tuple[dict[str, Any] | None, str]:
    """Facts that torch reports from its own process, which may crash; or the last line of the error message."""
    command = [sys.executable, "-m", "strategist_runtime.machine.doctor"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{type(error).__name__} while it was imported"
    if answer.returncode:
        lines = answer.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"importing it ended with {answer.returncode}"
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found, ""


def _gpus() -> tuple[tuple[dict[str, str], ...], str]:
    """nvidia-smi's values for each GPU, and the reason if it fails."""
    try:
        return parse_gpus(nvidia_smi(f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits")), ""
    except InputError as error:
        return (), error.law


def parse_gpus(text: str) -> tuple[dict[str, str], ...]:
    """The rows of nvidia-smi's CSV output, as dictionaries by field."""
    rows = ([item.strip() for item in line.split(",")] for line in text.splitlines() if line.strip())
    return tuple(dict(zip(GPU_FIELDS, row, strict=False)) for row in rows)


def _resolves() -> bool:
    try:
        return bool(socket.getaddrinfo(socket.gethostname(), None))
    except OSError:
        return False


def _can_listen(port: int, connect_seconds: float | None = None) -> bool:
    """Whether the port can be bound and, if a time is given, connected to within it: with loopback down, a port can be bound but
    not reached.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("127.0.0.1", port))
            if connect_seconds is not None:
                listener.listen()
                socket.create_connection(listener.getsockname(), connect_seconds).close()
        except OSError:
            return False
    return True


def _free_bytes(path: str) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _clock_is_synchronised() -> bool | None:
    """Whether a time server disciplines the kernel's clock (adjtimex(2) without a change, which only reads); None if unknown."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    answer = adjtimex(ctypes.create_string_buffer(512))
    return None if answer < 0 else answer != ADJTIMEX_ERROR


def _cgroup_limit(path: str) -> int | None:
    """A limit of this process's control group; None if there is none."""
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _core_quota() -> float | None:
    """Number of cores that the control group may use; None if unlimited."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(quota) / int(period) if quota.isdigit() else None
