"""Hardware of the local machine, detected without importing torch."""

import os
import re
import subprocess
from pathlib import Path

from strategist.errors import InputError

SMI_TIMEOUT_SECONDS = 10
VENDOR = re.compile(r"\b(NVIDIA|GeForce|Tesla)\s+", re.IGNORECASE)


def gpu_names() -> tuple[str, ...]:
    """One name per NVIDIA GPU, as ``nvidia-smi`` lists them, without the vendor; empty without ``nvidia-smi``.

    Raises:
        InputError: ``nvidia-smi`` exists but does not answer.
    """
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    do = "run it by hand to see why, or say what the machine has, as in --gpus 8xH100"
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        return ()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError("--gpus local", f"nvidia-smi does not answer ({type(error).__name__})", do) from None
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise InputError("--gpus local", f"nvidia-smi fails ({lines[0] if lines else result.returncode})", do)
    return tuple(VENDOR.sub("", line).strip() for line in result.stdout.splitlines() if line.strip())


def topology() -> str:
    """Connections between the GPUs, as ``nvidia-smi topo -m`` prints them; empty if unknown."""
    try:
        result = subprocess.run(
            ["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=SMI_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


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
