"""Benchmarks of collectives by message size and group size; all groups of a size run at the same time."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from strategist.contract.machine import CollectiveSample
from strategist_runtime.machine.stopwatch import seconds_together

BUDGET_SECONDS = 0.06
MESSAGES = {"cpu": (2**12, 2**16, 2**20, 2**24), "cuda": (2**13, 2**18, 2**23, 2**28)}
"""Bytes of a message; each is divisible by all power-of-two group sizes up to 1024 ranks."""

Call = Callable[[], object]


def collectives(device: torch.device) -> Iterator[CollectiveSample]:
    """All collectives, in groups of 2, 4, 8 ... neighbouring ranks and of all ranks."""
    world = dist.get_world_size()
    if world == 1:
        return
    for ranks in sorted({*(size for size in (2**power for power in range(1, 11)) if world % size == 0), world}):
        group, _ = dist.new_subgroups(group_size=ranks)
        for size in MESSAGES[device.type]:
            for name, call in _calls(device, group, ranks, size - size % (4 * ranks)):
                seconds = seconds_together(call, device, BUDGET_SECONDS)
                yield CollectiveSample(collective=name, ranks=ranks, message_bytes=size - size % (4 * ranks), seconds=seconds)


def _calls(device: torch.device, group: dist.ProcessGroup, ranks: int, size: int) -> Iterator[tuple[str, Call]]:
    full, other = torch.ones(size // 4, device=device), torch.ones(size // 4, device=device)
    shard = torch.ones(size // 4 // ranks, device=device)
    shards = list(other.chunk(ranks))
    first = dist.get_global_rank(group, 0)
    is_first = dist.get_rank() == first
    yield "all_reduce", lambda: dist.all_reduce(full, op=dist.ReduceOp.MAX, group=group)
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(shard, full, op=dist.ReduceOp.MAX, group=group)
    yield "all_gather", lambda: dist.all_gather_into_tensor(full, shard, group=group)
    yield "all_to_all", lambda: dist.all_to_all_single(other, full, group=group)
    yield "broadcast", lambda: dist.broadcast(full, src=first, group=group)
    yield "reduce", lambda: dist.reduce(full, dst=first, op=dist.ReduceOp.MAX, group=group)
    yield "gather", lambda: dist.gather(shard, shards if is_first else None, dst=first, group=group)
    yield "scatter", lambda: dist.scatter(shard, shards if is_first else None, src=first, group=group)
    if ranks == 2:
        peer = dist.get_global_rank(group, 1)
        yield (
            "p2p",
            (lambda: dist.send(full, dst=peer, group=group)) if is_first else lambda: dist.recv(full, src=first, group=group),
        )
