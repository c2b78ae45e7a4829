"""Names under which the profiler notes what a step is doing; next to free while nobody profiles."""

from torch.profiler import record_function as span

__all__ = ["DATA", "MARK", "PASSES", "STEP", "UPDATE", "span"]

STEP = "strategist:step"
DATA = "strategist:data"
PASSES = "strategist:passes"
"""Forward and backward passes of all micro-batches, with what is reduced meanwhile."""

UPDATE = "strategist:update"
"""Clipping and the optimizer's step."""

MARK = "strategist:at:"
"""Before a module's name: its forward or backward pass begins."""
