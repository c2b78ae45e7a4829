"""Reserved memory: bytes that torch's caching allocator holds beyond the tensors at the peak of a step.

A block is only reused on the stream that allocated it (c10/cuda/CUDACachingAllocator.cpp). Blocks that FSDP allocates on its own
streams therefore add to the peak of the compute stream, whose blocks are split by tensors of other sizes.
"""

import numpy as np

from strategist.cost.candidate_arrays import Floats, Mask, Parts
from strategist.cost.memory_timeline import TRANSIENT_PARTS, StageTimeline

FLOOR_BYTES = 0.25 * 2**30
"""Least overhead of a caching allocator: workspaces of cuBLAS, and partly used segments (fitted to nanotron's smallest runs, 1.6
to 6 GiB).
"""

FRAGMENTS_EXPONENT = 0.75
"""Exponent with which fragmentation grows with transient memory. With 0.2 GiB for 1 GiB it meets what 134 ranks of the plans of
benchmarks/memory.py reserve in the simulator within 2.4 % (median of those above 10 GiB), and on average at all sizes.
"""


def fragmentation(t: StageTimeline, peak: Parts, slack: float) -> Floats:
    """Bytes lost to fragmentation at the ``peak``: ``slack`` GiB for 1 GiB of transient tensors, and cached blocks of logits."""
    if not slack or t.traits.allocates_once:
        return np.zeros_like(t.v.tp)
    unreduced = np.where(t.reduced_last, peak["gradients"], 0.0)
    transient = sum((peak[name] for name in TRANSIENT_PARTS), start=unreduced)
    fragment_bytes = slack * 2**30 * (transient / 2**30) ** FRAGMENTS_EXPONENT
    return np.maximum(fragment_bytes, FLOOR_BYTES) + t.has_head * t.context.loss.cached_bytes


def cached_blocks(t: StageTimeline, peak: Parts, slack: float) -> Floats:
    """Bytes of unused cached blocks of other streams at the ``peak``. The allocator frees them before it would run out of memory
    (``release_cached_blocks``).
    """
    return gather_pool(t) + reduce_pool(t, peak) if slack and not t.traits.allocates_once else np.zeros_like(t.v.tp)


def gather_pool(t: StageTimeline) -> Floats:
    """Bytes of FSDP2's all-gather buffers, which lie on a separate stream per pipeline stage
    (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: ``foreach_all_gather``): a layer with the shard that it sends,
    and the next layer or embedding and head.
    """
    v, per = t.v, t.context.per
    layer, root = t.local.layer * per.gathered_layer, t.local.root * per.gathered
    root = root if t.traits.root == "both" else root / 2
    first_stage = layer * (1 + 1 / v.fsdp_ranks) + np.maximum(root, layer)
    further_stages = (v.virtual_stages - 1) * layer * (2 + 1 / v.fsdp_ranks)
    return np.where(_own_streams(t) & ~v.v_shaped & (not t.traits.flat), first_stage + further_stages, 0.0)


def reduce_pool(t: StageTimeline, peak: Parts) -> Floats:
    """Bytes of reduced gradient shards, allocated on the stream of reductions, that are not part of the peak. With several
    reduced micro-batches, the last one is allocated next to the sums before it is added: embedding and head, or with replicas all
    parameters.
    """
    v, per = t.v, t.context.per
    bytes_per_parameter = per.gradient * (per.trained if per.frozen else 1.0)
    shards = t.local.shard * bytes_per_parameter
    addition = np.where(v.dp_replicate > 1, t.local.shard, t.local.root / v.fsdp_ranks) * bytes_per_parameter
    in_peak = np.where(t.reduced_last, 0.0, peak["gradients"])
    additional = np.where(t.accumulates & ~t.reduced_last, addition, 0.0)
    return np.where(_own_streams(t) & ~v.offload_all, np.maximum(shards - in_peak, 0.0) + additional, 0.0)


def _own_streams(t: StageTimeline) -> Mask:
    """Whether FSDP2 gathers and reduces on streams of its own."""
    mask: Mask = t.v.fsdp & ~t.v.streamed & (t.traits.parameters == "shards")
    return mask
