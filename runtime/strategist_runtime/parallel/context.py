"""Context parallelism: each rank has a slice of every sequence (arXiv 2310.01889, 2407.21783)."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from strategist.contract.plan import Plan
from strategist_runtime.compat import context as compat_context
from strategist_runtime.data.batch import Batch
from strategist_runtime.model.attention_metadata import MetadataBuilder
from strategist_runtime.model.decoder import Decoder


class ContextParallel:
    """Context parallelism over ``mesh``: token order, attention and batches.

    The loss needs no reduction here: it is the mean over a rank's tokens, all ranks have equally many, and FSDP2 averages
    gradients over these ranks as well.
    """

    def __init__(self, plan: Plan, mesh: DeviceMesh, device: torch.device) -> None:
        self.mesh, self.options = mesh, plan.candidate.options
        self.rank, self.ranks = mesh.get_local_rank(), mesh.size()
        tokens = plan.workload.seq_len
        sequential = torch.arange(tokens, device=device)
        balanced = self.options.cp_load_balance != "none"
        self.order = compat_context.head_tail_order(tokens, self.ranks, device) if balanced else sequential

    def parallelize_attention(self, model: Decoder) -> None:
        """Makes each layer's attention compute this rank's queries against the keys of all ranks."""
        for layer in model.layers.values():
            attention = layer.get_submodule("attention")
            core = getattr(attention, "sinks", None) or attention.get_submodule("core")
            compat_context.parallelize_attention(core, self.mesh, self.options.cp_attention, self.options.cp_rotate)

    def metadata_builder(self, builder: MetadataBuilder) -> MetadataBuilder:
        """The builder of attention metadata for this rank's slices."""
        rotary, flex = builder.local_rotary, self.options.cp_attention == "flex"
        return MetadataBuilder(rotary, self.order, rank=self.rank, ranks=self.ranks, always_mask=flex, window=builder.window)

    def shard_batch(self, rows: Batch) -> Batch:
        """This rank's slice of each row. ``documents`` stay whole, since masks also need those of the keys of other ranks."""
        order = self.order.expand_as(rows.tokens) if rows.documents is None else self._row_orders(rows.documents)
        shard_order = None if self.options.cp_load_balance == "none" else order
        shards = compat_context.shard_sequence(self.mesh, [rows.tokens, rows.targets], shard_order)
        tokens, targets = (shard.clone() for shard in shards)
        varies = rows.documents is not None and self.options.cp_load_balance == "per_document"
        return replace(rows, tokens=tokens, targets=targets, order=order if varies else None)

    def _row_orders(self, documents: Tensor) -> Tensor:
        """The token order of each row, [rows, S]."""
        if self.options.cp_load_balance != "per_document":
            return self.order.expand_as(documents)
        rows = [divisible_lengths(row, 2 * self.ranks) for row in documents]
        return torch.stack([compat_context.head_tail_order_per_document(row, self.ranks, documents.device) for row in rows])


def divisible_lengths(documents: Tensor, parts: int) -> list[int]:
    """The lengths of a row's documents [S], with each end rounded down to a multiple of ``parts``, so that each splits into equal
    parts.

    A part may contain a few tokens of the next document; the mask still separates documents.
    """
    ends = (torch.nonzero(documents[1:] != documents[:-1]).flatten() + 1) // parts * parts
    boundaries = torch.tensor([0, *ends.unique().tolist(), len(documents)])
    return [length for length in boundaries.diff().tolist() if length]
