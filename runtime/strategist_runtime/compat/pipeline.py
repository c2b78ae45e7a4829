"""Private names of torch.distributed.pipelining that pipeline stages need."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

META = torch.device("meta")


class Stage(PipelineStage):
    """A stage that keeps what it receives while its micro-batch is in flight; torch's has buffers for all micro-batches of a step,
    as long as it lives, and what gradients they were given until the next step."""

    def _prepare_forward_infra(self, *arguments: Any, **options: Any) -> Any:
        with self._without_memory():
            return super()._prepare_forward_infra(*arguments, **options)

    def _prepare_backward_infra(self, *arguments: Any, **options: Any) -> Any:
        with self._without_memory():
            return super()._prepare_backward_infra(*arguments, **options)

    def _get_init_p2p_neighbors_ops(self) -> list[Any]:
        """Of torch 2.11, which has neighbours on one rank greet each other as well; gloo sends nothing to itself."""
        return [greeting for greeting in super()._get_init_p2p_neighbors_ops() if greeting.group_peer != self.group_rank]

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[Any]:
        allocate(self.args_recv_info[fwd_chunk_id], self.device)
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[Any]:
        allocate(self.grad_recv_info[bwd_chunk_id], self.device)
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        output = super().forward_one_chunk(fwd_chunk_id, *arguments, **options)
        if self.is_last:  # the backward pass begins with the loss, which is kept elsewhere
            self.fwd_cache[fwd_chunk_id] = (), self.fwd_cache[fwd_chunk_id][1]
        return output

    def _validate_fwd_outputs(self, outputs: Any) -> None:
        """Of torch 2.11, by the layout and type of the example; nothing receives what a last stage makes."""
        if not self.is_last:
            super()._validate_fwd_outputs(outputs)  # type: ignore[misc]

    def backward_one_chunk(self, bwd_chunk_id: int, loss: Tensor | None = None, *arguments: Any, **options: Any) -> None:
        super().backward_one_chunk(bwd_chunk_id, loss, *arguments, **options)
        if loss is not None:  # the schedule keeps it through the step, and its graph what the micro-batch brought in
            loss.detach_()
        free((*self.args_recv_info[bwd_chunk_id], *self.grad_recv_info[bwd_chunk_id]))

    @contextmanager
    def _without_memory(self) -> Iterator[None]:
        device, self.device = self.device, META
        try:
            yield
        finally:
            self.device = device


def allocate(received: Iterable[Any], device: torch.device) -> None:
    """Gives what will arrive its memory."""
    for info in received:
        if _buffer(info) is not None and info.buffer.is_meta:
            info.buffer = _like(info.buffer, device)


def free(received: Iterable[Any]) -> None:
    """Takes it back; that what arrives is a leaf of autograd's stays known."""
    for info in received:
        if _buffer(info) is not None:
            info.buffer = _like(info.buffer, META)


def _buffer(info: Any) -> Tensor | None:
    """Where it arrives; in torch 2.11 what a first stage is given by its caller has no such place."""
    return getattr(info, "buffer", None)


def _like(buffer: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(buffer, device=device).requires_grad_(buffer.requires_grad)
