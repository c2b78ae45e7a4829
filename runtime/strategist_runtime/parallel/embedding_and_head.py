"""Tied embedding and head on different pipeline stages: each stage has a copy of the weight, and their gradients are summed."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from strategist_runtime.compat.dtensor import local
from strategist_runtime.model.decoder import plain_names


class EmbeddingAndHead:
    """Tied embedding and head on different stages: each has a copy of the weight, and summed gradients keep the copies equal.

    ``pairs`` are the ranks with the first and with the last stage of each pipeline, ranks that hold both as one. Every rank must
    make it, at the same time.
    """

    def __init__(self, parts: Iterable[nn.Module], pairs: Sequence[tuple[int, int]], device: torch.device) -> None:
        ranks = [sorted(set(pair)) for pair in pairs]
        apart = any(len(pair) > 1 for pair in ranks)
        self.group = dist.new_subgroups_by_enumeration(ranks, group_desc="mesh_pp_ends")[0] if apart else None
        self.copies = [weight for name, weight in plain_names(parts) if name in ("embedding.weight", "head.weight")]
        self.device = device

    def sum_gradients(self) -> None:
        """After the passes of all micro-batches."""
        pieces = [local(copy.grad) for copy in self.copies if copy.grad is not None]
        if self.group is not None and pieces:
            on_device = pieces[0].to(self.device)  # streamed stages have theirs on the host
            dist.all_reduce(on_device, group=self.group)
            pieces[0].copy_(on_device)
        elif len(pieces) > 1:
            pieces[0] += pieces[1]
            pieces[1].copy_(pieces[0])
