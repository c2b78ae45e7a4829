"""Named spans of a step for the profiler; nearly free while no profiler runs."""

from torch.profiler import record_function as span

__all__ = ["DATA", "HOST_UPDATE", "MODULE_PREFIX", "PASSES", "RECOMPUTE", "STEP", "UPDATE", "span"]

STEP = "strategist:step"
DATA = "strategist:data"
PASSES = "strategist:passes"
"""Forward and backward passes of all micro-batches, including the reductions within them."""

UPDATE = "strategist:update"
"""Gradient clipping and the optimizer's step."""

RECOMPUTE = "strategist:again"
"""A forward pass that is recomputed outside of autograd's engine."""

HOST_UPDATE = "strategist:hosts"
"""Waiting for optimizer updates on the host that run concurrently with the passes."""

MODULE_PREFIX = "strategist:at:"
"""Prefix of a module's name, at the begin of its forward or backward pass."""
