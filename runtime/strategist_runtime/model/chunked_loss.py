"""Cross entropy over chunks of the tokens, fused with the head's matmul (Liger, arXiv 2410.10989): logits of one chunk exist at a
time.

Gradients are computed in the forward pass, chunk by chunk. Checkpointing each chunk instead would multiply with the head once more,
and autograd would sum the gradients of the head in the compute type: in bf16 that rounds after each chunk.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from strategist.contract.loss import IGNORED
from strategist_runtime.compat.dtensor import local, local_share


@dataclass(frozen=True, kw_only=True)
class ChunkedLoss:
    """A sum over tokens, divided by ``divisor``; its gradients are multiplied by ``scale`` (of fp16). A chunk has ``chunk_tokens``
    tokens, the last one may have fewer.
    """

    chunk_tokens: int
    divisor: float
    scale: float = 1.0

    def __call__(self, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """The loss of hidden states [B, T, H], the head's weight [V, H] and targets [B, T]. Under tensor parallelism the weight is
        a DTensor sharded by rows, and logits stay sharded; hidden states may be sharded by sequence.
        """
        mesh = weight.device_mesh if isinstance(weight, DTensor) else None
        hidden, weight = _gathered_hidden(hidden, mesh), local(weight)
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            hidden, weight = hidden.to(dtype), weight.to(dtype)
        trained = torch.is_grad_enabled()
        vocabulary = _Vocabulary(mesh=mesh, rows=len(weight))
        loss: Tensor = _ChunkedLossFunction.apply(hidden.flatten(0, 1), weight, targets.flatten(), self, vocabulary, trained)
        return loss


def _gathered_hidden(hidden: Tensor, mesh: DeviceMesh | None) -> Tensor:
    """Hidden states of all tokens on each tensor-parallel rank; the gradient that leaves is the sum over ranks."""
    if mesh is None:
        return hidden
    if not isinstance(hidden, DTensor):
        hidden = DTensor.from_local(hidden, mesh, [Replicate()], run_check=False)
    return local_share(hidden.redistribute(placements=[Replicate()]))


@dataclass(frozen=True, kw_only=True)
class _Vocabulary:
    """This rank's ``rows`` of the vocabulary, which ``mesh`` shards evenly; all rows if it is None."""

    mesh: DeviceMesh | None
    rows: int

    def cross_entropy(self, logits: Tensor, targets: Tensor, factor: float) -> Tensor:
        """The loss of each token [N], of fp32 logits [N, rows], which become their gradients times ``factor``; 0 for ignored
        targets.
        """
        valid, row = targets != IGNORED, targets - self._first_row
        is_local = valid & (row >= 0) & (row < self.rows)
        row = row.clamp(0, self.rows - 1).unsqueeze(1)
        largest = logits.amax(1, keepdim=True)
        self._reduce(largest, dist.ReduceOp.MAX)
        logits.sub_(largest)
        target_logits = logits.gather(1, row).squeeze(1) * is_local
        sums = torch.stack((logits.exp_().sum(1), target_logits))
        self._reduce(sums, dist.ReduceOp.SUM)
        logits.mul_((valid * factor / sums[0]).unsqueeze(1))
        logits.scatter_add_(1, row, (is_local * -factor).unsqueeze(1))
        return (sums[0].log() - sums[1]) * valid

    @property
    def _first_row(self) -> int:
        return 0 if self.mesh is None else self.mesh.get_local_rank() * self.rows

    def _reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
        if self.mesh is not None:
            dist.all_reduce(values, operation, group=self.mesh.get_group())


class _ChunkedLossFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, hidden: Tensor, weight: Tensor, targets: Tensor, sizes: ChunkedLoss, vocabulary: _Vocabulary, trained: bool
    ) -> Tensor:
        """Loss and gradients, chunk by chunk. ``trained``: gradients are enabled (``needs_input_grad`` ignores that)."""
        needs_hidden, needs_weight = (needed and trained for needed in context.needs_input_grad[:2])
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient: Tensor | None = None
        several_chunks = len(hidden) > sizes.chunk_tokens
        loss = torch.zeros((), device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            for begin in range(0, len(hidden), sizes.chunk_tokens):
                rows = slice(begin, begin + sizes.chunk_tokens)
                logits = F.linear(hidden[rows], weight).float()
                loss += vocabulary.cross_entropy(logits, targets[rows], sizes.scale / sizes.divisor).sum() / sizes.divisor
                if not (needs_hidden or needs_weight):
                    continue
                gradient = logits.to(hidden.dtype)
                del logits
                if hidden_gradient is not None:
                    torch.mm(gradient, weight, out=hidden_gradient[rows])
                if needs_weight:
                    chunk_gradient = gradient.t() @ hidden[rows]
                    if weight_gradient is None:
                        weight_gradient = chunk_gradient.float() if several_chunks else chunk_gradient
                    else:
                        weight_gradient += chunk_gradient
                    del chunk_gradient
                del gradient
        context.save_for_backward(hidden_gradient, None if weight_gradient is None else weight_gradient.to(weight.dtype))
        return loss

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        hidden, weight = (None if saved is None else saved * gradient.to(saved.dtype) for saved in context.saved_tensors)
        return hidden, weight, None, None, None, None
