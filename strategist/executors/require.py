"""What must be there before anything is started; said in one line where it is not."""

import importlib.util
import sys

from strategist.errors import InputError
from strategist.executors import processes

INSTALL = "'torch-strategist[runtime]'"


def require_supervision() -> None:
    """Raises InputError where the system does not show what the supervision of processes needs."""
    if not processes.supported():
        raise InputError(f"system {sys.platform}", "cannot supervise trials", "run them on Linux")


def require_torch() -> None:
    """Raises InputError where torch, or the executing half, is not installed for this interpreter."""
    for name in _missing():
        raise InputError(f"{sys.executable}: {name}", "is not installed", f"pip install {INSTALL}")


def torch_installed() -> bool:
    """Whether torch and the executing half are there."""
    return not _missing()


def _missing() -> list[str]:
    return [name for name in ("torch", "strategist_runtime") if importlib.util.find_spec(name) is None]
