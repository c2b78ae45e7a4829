"""strategist: strategy cards, a cost model and measured trials that propose settings for distributed PyTorch training.

The public use-cases are in :mod:`strategist.api` and are handed out here, loaded on first use.
"""

from importlib import import_module
from typing import Any

__all__ = ["plan", "run", "tune"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("strategist.api"), name)
    raise AttributeError(f"module 'strategist' has no attribute {name!r}")
