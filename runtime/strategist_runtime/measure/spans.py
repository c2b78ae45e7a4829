"""Named spans of a step for the profiler; nearly free while no profiler runs."""

from torch.profiler import record_function as span

__all__ = ["AGAIN", "DATA", "HOSTS", "MARK", "PASSES", "STEP", "UPDATE", "span"]

STEP = "strategist:step"
DATA = "strategist:data"
PASSES = "strategist:passes"
"""Forward and backward passes of all micro-batches, with what is reduced meanwhile."""

UPDATE = "strategist:update"
"""Clipping and the optimizer's step."""

AGAIN = "strategist:again"
"""A forward pass that is done again outside of autograd's engine."""

HOSTS = "strategist:hosts"
"""Waiting for an update that the host makes beside the passes."""

MARK = "strategist:at:"
"""Before a module's name: its forward or backward pass begins."""
