"""What selective recomputation saves: groups of operations whose outputs are kept; the rest of a layer is computed again."""

SAVED_OPERATIONS = (
    "matmul+attention",
    "every_second_matmul+attention",
    "attention",
    "matmul+attention+collectives",
    "every_second_matmul+attention+collectives",
    "attention+collectives",
)
"""Every group has attention, and with experts the choice of experts: no token may change its mind. ``every_second_matmul`` counts
a layer's matmuls in the order of its forward pass and keeps the first, the third and so on (torchtitan's policy, with collectives).
``collectives`` are the reductions of tensor parallelism and the exchanges of expert parallelism; inputs are gathered again."""

_MATMULS = {"matmul": 1, "every_second_matmul": 2}


def matmul_stride(saved: str) -> int:
    """Every how many-th matmul is kept: 1 all, 2 every second, 0 none."""
    return next((stride for group, stride in _MATMULS.items() if group in saved.split("+")), 0)


def saves_collectives(saved: str) -> bool:
    """Whether reductions and exchanges between ranks are kept."""
    return "collectives" in saved.split("+")
