"""Tied embedding and head on different pipeline stages: each stage has a copy of the weight, and their gradients are summed."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from strategist_runtime.compat.dtensor import local
from strategist_runtime.model.decoder import plain_names


class EmbeddingAndHead:
    """Tied embedding and head on different stages: each has a copy of the weight, and summed gradients keep the copies equal.

    ``pairs`` are the ranks of the first and of the last stage of each pipeline; both may be one rank. All ranks must construct
    it at the same time, since it makes process groups.
    """

    def __init__(self, parts: Iterable[nn.Module], pairs: Sequence[tuple[int, int]], device: torch.device) -> None:
        ranks = [sorted(set(pair)) for pair in pairs]
        on_two_ranks = any(len(pair) > 1 for pair in ranks)
        self.group = dist.new_subgroups_by_enumeration(ranks, group_desc="mesh_pp_tied_weights")[0] if on_two_ranks else None
        self.copies = [weight for name, weight in plain_names(parts) if name in ("embedding.weight", "head.weight")]
        self.device = device

    def sum_gradients(self) -> None:
        """Sums the gradients of the two copies; to be called after the passes of all micro-batches."""
        gradients = [local(copy.grad) for copy in self.copies if copy.grad is not None]
        if self.group is not None and gradients:
            on_device = gradients[0].to(self.device)  # gradients of streamed stages are on the host
            dist.all_reduce(on_device, group=self.group)
            gradients[0].copy_(on_device)
        elif len(gradients) > 1:
            gradients[0] += gradients[1]
            gradients[1].copy_(gradients[0])
