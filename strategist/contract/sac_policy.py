"""Selective activation checkpointing: groups of operations whose outputs are saved; the rest of a layer is recomputed."""

SAVED_OPERATIONS = (
    "matmul+attention",
    "every_second_matmul+attention",
    "attention",
    "matmul+attention+collectives",
    "every_second_matmul+attention+collectives",
    "attention+collectives",
)
"""Values of the knob. Every value saves attention and, in MoE layers, the router's selection of experts, because recomputation must
not route a token differently. ``every_second_matmul`` saves the first, third and every further second matmul of a layer's forward
pass (torchtitan's policy, with collectives). ``collectives`` saves the results of reductions of tensor parallelism and of exchanges
of expert parallelism; all-gathers of inputs are repeated.
"""

_MATMULS = {"matmul": 1, "every_second_matmul": 2}


def matmul_stride(saved: str) -> int:
    """Stride of saved matmuls: 1 saves all, 2 every second, 0 none."""
    return next((stride for group, stride in _MATMULS.items() if group in saved.split("+")), 0)


def saves_collectives(saved: str) -> bool:
    """Whether results of reductions and exchanges between ranks are saved."""
    return "collectives" in saved.split("+")
