"""Hardware of the local machine, detected without importing torch."""

import os
import re
import subprocess
from pathlib import Path

from strategist.errors import InputError

SMI_TIMEOUT_SECONDS = 30
"""Without persistence mode the driver initialises every GPU first."""

_DIVIDED, _WHOLE = re.compile(r"\s*,\s*Enabled$"), re.compile(r"\s*,\s*(Disabled|\[?N/A\]?|\[Not Supported\])$")
"""MIG mode of a GPU behind its name; GPUs that cannot be divided have none."""

VENDOR = re.compile(r"\b(NVIDIA|GeForce|Tesla)\s+", re.IGNORECASE)


def nvidia_smi(*arguments: str) -> str:
    """Output of ``nvidia-smi``; empty if it is not installed.

    Raises:
        InputError: it is installed and does not answer, or fails.
    """
    command, do = ["nvidia-smi", *arguments], "run it by hand to see why, or say what the machine has, as in --gpus 8xH100"
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError("--gpus local", f"nvidia-smi does not answer ({type(error).__name__})", do) from None
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise InputError("--gpus local", f"nvidia-smi fails ({lines[0] if lines else result.returncode})", do)
    return result.stdout


def gpu_names() -> tuple[str, ...]:
    """One name per NVIDIA GPU, as ``nvidia-smi`` lists them, without the vendor; empty without ``nvidia-smi``. The name of a GPU
    that is divided into slices ends in MIG.

    Raises:
        InputError: ``nvidia-smi`` exists but does not answer.
    """
    lines = nvidia_smi("--query-gpu=name,mig.mode.current", "--format=csv,noheader").splitlines()
    return tuple(_DIVIDED.sub(" MIG", _WHOLE.sub("", VENDOR.sub("", line).strip())) for line in lines if line.strip())


def topology() -> str:
    """Connections between the GPUs, as ``nvidia-smi topo -m`` prints them; empty if unknown."""
    try:
        return nvidia_smi("topo", "-m")
    except InputError:
        return ""


def profile_path() -> Path:
    """File for the profile of this machine, which ``strategist profile`` measures."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "strategist" / "local.yaml"


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory_bytes() -> int:
    """Physical memory of the machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
