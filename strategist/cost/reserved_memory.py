"""Reserved memory: what torch's caching allocator holds beyond the tensors at the peak of a step.

A block serves again on the stream that it was made on (c10/cuda/CUDACachingAllocator.cpp), so what FSDP allocates on streams of its
own lies beside the peak of the stream that computes, and that stream's blocks are cut by tensors of other sizes.
"""

import numpy as np

from strategist.cost.candidate_arrays import Floats, Mask, Parts
from strategist.cost.memory_timeline import TRANSIENT, StageTimeline

FLOOR_BYTES = 0.25 * 2**30
"""What an allocator that caches holds at least beside tensors: workspaces of cuBLAS, and segments of which a part is used (fitted
to nanotron's smallest runs, 1.6 to 6 GiB)."""

FRAGMENTS_EXPONENT = 0.75
"""How blocks that are cut grow with transient memory: as its power. With 0.2 GiB for 1 GiB, what 134 ranks of the plans of
benchmarks/memory.py reserve in the simulator is met within 2.4 % (median of those above 10 GiB), and in the mean of all sizes."""


def fragmentation(t: StageTimeline, peak: Parts, slack: float) -> Floats:
    """Bytes that lie unused between the tensors at the ``peak``: ``slack`` GiB of 1 GiB of transient tensors."""
    if not slack or t.traits.allocates_once:
        return np.zeros_like(t.v.tp)
    waiting = np.where(t.reduced_last, peak["gradients"], 0.0)
    transient = sum((peak[name] for name in TRANSIENT), start=waiting)
    fragments = slack * 2**30 * (transient / 2**30) ** FRAGMENTS_EXPONENT
    return np.maximum(fragments, FLOOR_BYTES)


def cached_blocks(t: StageTimeline, peak: Parts, slack: float) -> Floats:
    """Bytes of blocks on other streams that no tensor uses at the ``peak``: the allocator gives them back where it would run out
    (``release_cached_blocks``)."""
    return gather_pool(t) + reduce_pool(t, peak) if slack and not t.traits.allocates_once else np.zeros_like(t.v.tp)


def gather_pool(t: StageTimeline) -> Floats:
    """Buffers that FSDP2 gathers into, on a stream of its own for each stage of a pipeline
    (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: ``foreach_all_gather``): a layer with the shard that it sends, beside
    the layer after it, or beside embedding and head."""
    v, layer = t.v, t.local.layer
    root = t.local.root if t.traits.root == "both" else t.local.root / 2
    first = layer * (1 + 1 / v.fsdp_ranks) + np.maximum(root, layer)
    others = (v.virtual_stages - 1) * layer * (2 + 1 / v.fsdp_ranks)
    return np.where(_fsdp(t) & ~v.v_shaped & (not t.traits.flat), (first + others) * t.context.per.gathered, 0.0)


def reduce_pool(t: StageTimeline, peak: Parts) -> Floats:
    """Shards of gradients, which reductions make on a stream of their own: those that are not at the peak. Where several
    micro-batches are reduced, what the last of them adds lies beside the sums: of embedding and head, with replicas of all."""
    v, per = t.v, t.context.per
    each = per.gradient * (per.trained if per.frozen else 1.0)
    shards, added = t.local.shard * each, np.where(v.dp_replicate > 1, t.local.shard, t.local.root / v.fsdp_ranks) * each
    there = np.where(t.reduced_last, 0.0, peak["gradients"])
    more = np.where(t.several & ~t.reduced_last, added, 0.0)
    return np.where(_fsdp(t) & ~v.offload_all, np.maximum(shards - there, 0.0) + more, 0.0)


def _fsdp(t: StageTimeline) -> Mask:
    mask: Mask = ~t.v.ddp & ~t.v.streamed & (t.v.fsdp_ranks * t.v.dp_replicate > 1) & (t.traits.parameters == "shards")
    return mask
