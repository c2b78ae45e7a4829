"""Times of small pieces of work: repeated as often as a budget allows, on all ranks equally often where they work together."""

import math
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from strategist_runtime.compat.device import synchronize

Work = Callable[[], object]
LEAST, MOST = 3, 200
WARM_UPS = 2


def seconds_of(work: Work, device: torch.device, budget_seconds: float) -> float:
    """Median seconds of one run of ``work`` on this rank."""
    times: list[float] = []
    for _ in range(WARM_UPS):
        once(work, device)
    begin = time.perf_counter()
    while len(times) < LEAST or (time.perf_counter() - begin < budget_seconds and len(times) < MOST):
        times.append(once(work, device))
    return statistics.median(times)


def once(work: Work, device: torch.device) -> float:
    """Seconds of one run."""
    synchronize(device)
    begin = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begin


def seconds_together(work: Work, device: torch.device, budget_seconds: float) -> float:
    """Seconds of one run of a ``work`` in which all ranks take part, each as often as the others; the slowest rank's median."""
    for _ in range(WARM_UPS - 1):
        once(work, device)
    first = _over_ranks(once(work, device), device, dist.ReduceOp.MAX)
    repeats = min(MOST, max(LEAST, math.ceil(budget_seconds / max(first, 1e-6))))
    times = [once(work, device) for _ in range(repeats)]
    return _over_ranks(statistics.median(times), device, dist.ReduceOp.MAX)


def mean_over_ranks(value: float, device: torch.device) -> float:
    """The mean of what each rank has."""
    return _over_ranks(value, device, dist.ReduceOp.SUM) / dist.get_world_size()


def _over_ranks(value: float, device: torch.device, how: dist.ReduceOp.RedOpType) -> float:
    shared = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(shared, op=how)
    return float(shared)
