"""Requirements of executors: what must be installed or supported before they start; the error is one line."""

import importlib.util
import os
import sys

from strategist.errors import InputError
from strategist.executors import processes

INSTALL = "'torch-strategist[runtime]'"


def require_supervision() -> None:
    """Raises InputError if the system lacks what the supervision of processes needs."""
    if not processes.supported():
        raise InputError(f"system {sys.platform}", "cannot supervise trials", "run them on Linux")
    if not os.access(sys.executable, os.X_OK):
        law = "is this process's Python and cannot be started any more, and ranks are started with it"
        raise InputError(sys.executable, law, "install it again, and start anew")


def require_torch() -> None:
    """Raises InputError if torch, or strategist's runtime, is not installed for this interpreter."""
    for name in _missing():
        raise InputError(f"{sys.executable}: {name}", "is not installed", f"pip install {INSTALL}")


def torch_installed() -> bool:
    """Whether torch and strategist's runtime are installed."""
    return not _missing()


def _missing() -> list[str]:
    return [name for name in ("torch", "strategist_runtime") if importlib.util.find_spec(name) is None]
