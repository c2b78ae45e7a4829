"""Private names of torch.distributed.pipelining that pipeline stages need."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

META = torch.device("meta")


class Stage(PipelineStage):
    """A stage that holds receive buffers only while their micro-batch is in flight; torch's has buffers for all micro-batches of
    a step, as long as the stage lives, and keeps received gradients until the next step.

    ``loss_in_stage``: the last stage computes the loss itself (chunked loss).
    """

    def __init__(self, *arguments: Any, loss_in_stage: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.loss_in_stage = loss_in_stage
        self.split_losses: dict[int, Tensor] = {}
        """By micro-batch: a copy of the loss between its two backward passes, for input and weight gradients. torch 2.11 detaches
        the loss after the first one, which would free the node of a chunked loss, from which the second one starts.
        """

    def _prepare_forward_infra(self, *arguments: Any, **options: Any) -> Any:
        with self._on_meta_device():
            return super()._prepare_forward_infra(*arguments, **options)

    def _prepare_backward_infra(self, *arguments: Any, **options: Any) -> Any:
        with self._on_meta_device():
            return super()._prepare_backward_infra(*arguments, **options)

    def _get_init_p2p_neighbors_ops(self) -> list[Any]:
        """torch 2.11's initial messages to neighbours, without those to this rank itself, which gloo cannot send."""
        return [message for message in super()._get_init_p2p_neighbors_ops() if message.group_peer != self.group_rank]

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[Any]:
        allocate(self.args_recv_info[fwd_chunk_id], self.device)
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[Any]:
        allocate(self.grad_recv_info[bwd_chunk_id], self.device)
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        output = super().forward_one_chunk(fwd_chunk_id, *arguments, **options)
        if self.is_last:  # the backward pass starts from the loss, which the schedule keeps
            self.fwd_cache[fwd_chunk_id] = (), self.fwd_cache[fwd_chunk_id][1]
        return output

    def _validate_fwd_outputs(self, outputs: Any) -> None:
        """torch 2.11's check of layout and type against the example output; skipped for the last stage, whose output is not
        sent.
        """
        if not self.is_last:
            super()._validate_fwd_outputs(outputs)  # type: ignore[misc]

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, *arguments: Any, **options: Any
    ) -> None:
        if loss is not None and self.loss_in_stage and not full_backward:
            self.split_losses[bwd_chunk_id] = loss.clone()
        super().backward_one_chunk(bwd_chunk_id, loss, full_backward, *arguments, **options)
        if loss is not None:  # the schedule keeps it through the step, and its graph would keep the micro-batch's input
            loss.detach_()
        free((*self.args_recv_info[bwd_chunk_id], *self.grad_recv_info[bwd_chunk_id]))

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **options: Any) -> None:
        super().backward_weight_one_chunk(bwd_chunk_id, *arguments, **options)
        self.split_losses.pop(bwd_chunk_id, None)

    @contextmanager
    def _on_meta_device(self) -> Iterator[None]:
        device, self.device = self.device, META
        try:
            yield
        finally:
            self.device = device


def allocate(received: Iterable[Any], device: torch.device) -> None:
    """Allocates receive buffers."""
    for info in received:
        if _buffer(info) is not None and info.buffer.is_meta:
            info.buffer = _empty_like(info.buffer, device)


def free(received: Iterable[Any]) -> None:
    """Frees receive buffers; their ``requires_grad`` is kept."""
    for info in received:
        if _buffer(info) is not None:
            info.buffer = _empty_like(info.buffer, META)


def _buffer(info: Any) -> Tensor | None:
    """The receive buffer; None if there is none, as for the first stage's input in torch 2.11."""
    return getattr(info, "buffer", None)


def _empty_like(buffer: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(buffer, device=device).requires_grad_(buffer.requires_grad)
