"""Seeing each operation as it is dispatched."""

from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
from torch.utils._pytree import tree_leaves as leaves

__all__ = ("DispatchMode", "leaves")
