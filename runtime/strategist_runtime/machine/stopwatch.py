"""Timing of short work: repeated within a time budget; equally often on all ranks if they work together."""

import math
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from strategist_runtime.compat.device import synchronize

Work = Callable[[], object]
MIN_REPEATS, MAX_REPEATS = 3, 200
WARM_UPS = 2
BURSTS, MAX_LAUNCHES = 5, 5_000
SUSTAINED_SECONDS = 1.0
"""Seconds of computation after which a GPU has the clock rate that its power limit allows."""

LONG_SECONDS = 1e-3
"""Duration of GPU work from which the GPU's clock rate matters more than the launch."""


def warm_up(work: Work, device: torch.device, seconds: float = 2.0) -> None:
    """Runs ``work`` for some seconds, so that a GPU leaves its idle clock rate; does nothing on CPU."""
    begin = time.perf_counter()
    while device.type == "cuda" and time.perf_counter() - begin < seconds:
        once(work, device)


def seconds_of(work: Work, device: torch.device, budget_seconds: float) -> float:
    """Median seconds of one run of ``work`` on this rank; on a GPU those of the device, with runs launched back to back."""
    for _ in range(WARM_UPS):
        once(work, device)
    if device.type == "cuda":
        return _on_gpu(work, device, budget_seconds)
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < MIN_REPEATS or (time.perf_counter() - begin < budget_seconds and len(times) < MAX_REPEATS):
        times.append(once(work, device))
    return statistics.median(times)


def _on_gpu(work: Work, device: torch.device, budget_seconds: float) -> float:
    first = _burst(work, device, MIN_REPEATS)
    seconds = SUSTAINED_SECONDS if first >= LONG_SECONDS else budget_seconds
    launches = min(MAX_LAUNCHES, max(MIN_REPEATS, math.ceil(seconds / BURSTS / max(first, 1e-6))))
    return statistics.median(_burst(work, device, launches) for _ in range(BURSTS))


def _burst(work: Work, device: torch.device, launches: int) -> float:
    """Mean seconds of one of ``launches`` runs, measured by two events of the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(torch.cuda.current_stream(device))
    for _ in range(launches):
        work()
    end.record(torch.cuda.current_stream(device))
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / launches


def once(work: Work, device: torch.device) -> float:
    """Seconds of one run."""
    synchronize(device)
    begin = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begin


def seconds_together(work: Work, device: torch.device, budget_seconds: float) -> float:
    """Seconds of one run of ``work`` in which all ranks take part, equally often; the median of the slowest rank."""
    for _ in range(WARM_UPS - 1):
        once(work, device)
    first = _over_ranks(once(work, device), device, dist.ReduceOp.MAX)
    repeats = min(MAX_REPEATS, max(MIN_REPEATS, math.ceil(budget_seconds / max(first, 1e-6))))
    times = [once(work, device) for _ in range(repeats)]
    return _over_ranks(statistics.median(times), device, dist.ReduceOp.MAX)


def mean_over_ranks(value: float, device: torch.device) -> float:
    """The mean of a value over all ranks."""
    return _over_ranks(value, device, dist.ReduceOp.SUM) / dist.get_world_size()


def _over_ranks(value: float, device: torch.device, operation: dist.ReduceOp.RedOpType) -> float:
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total, op=operation)
    return float(total)
