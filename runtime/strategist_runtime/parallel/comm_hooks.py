"""DDP communication hooks: reduce a bucket of gradients in another type, or as low-rank matrices (PowerSGD, arXiv 1905.13727)."""

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from strategist.contract.plan import Plan
from strategist_runtime.precision import DTYPES, reduce_dtype

Hook = Callable[[dist.GradBucket], torch.futures.Future[Tensor]]

POWERSGD_RANK = 4
"""Rank of PowerSGD's matrices; the cost model assumes the same (arXiv 1905.13727, section 5)."""

UNCOMPRESSED_STEPS = 2
"""Steps in which PowerSGD reduces uncompressed gradients: the fewest that torch allows, since DDP rebuilds its buckets after the
first.
"""


def comm_hook(plan: Plan) -> Hook:
    """The plan's hook: starts the reduction of a bucket and returns a future with the values of all ranks."""
    kind = plan.candidate.knobs.comm_hook
    if kind == "powersgd":
        return partial(
            powerSGD_hook, PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=UNCOMPRESSED_STEPS)
        )
    return partial(_average_in, reduce_dtype(plan) if kind == "none" else DTYPES[kind])


def run_hook(hook: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The hook that DDP gets, with the real one as its state: DDP checks annotations, which partials lack."""
    return hook(bucket)


def _average_in(dtype: torch.dtype, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Averages a bucket over the ranks in ``dtype``; torch's own bf16 hook refuses builds without CUDA."""
    buffer = bucket.buffer()
    gradients = buffer.to(dtype).div_(dist.get_world_size())
    work = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda done: buffer.copy_(done.value()[0]))
