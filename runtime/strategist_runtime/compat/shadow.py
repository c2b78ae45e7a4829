"""Private names of torch for a single rank without peers: a process group that generates what the peers would send."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import FakeWork, _create_work_from_future  # type: ignore[attr-defined]
from torch.profiler import record_function

STAND_IN = "strategist:stand-in"
"""The profiler span of an operation that replaces a collective; neither communication nor this rank's computation."""

ACTIVATION_BOUND = 0.03
"""Values received from another stage are uniform in [-SPREAD, SPREAD], like a model's first embeddings."""

_library: list[torch.library.Library] = []


def loop_back_collectives() -> None:
    """Replaces collectives: data from peers is a copy of this rank's own, made once; data from another stage is small random
    numbers. Cannot be undone.

    torch's fake group makes a copy for each peer, which in a large group takes longer than computation. It also receives
    nothing, so a stage would compute on uninitialised memory. Values matter: devices are faster on zeros, and slower near
    overflow.
    """
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Oo]verrid")  # overriding is intended
        for name, collective in _STAND_INS.items():
            for key in ("CPU", "CUDA"):
                library.impl(name, collective, key, allow_override=True)
    _library.append(library)
    warnings.filterwarnings("ignore", message="Set timeout is now only supported")  # there are no peers to wait for


def _finished_work() -> Any:
    return FakeWork().boxed()


def _all_gather(output: Tensor, local_input: Tensor, *_: Any) -> tuple[Tensor, Any]:
    with record_function(STAND_IN):
        parts, source = output.view(-1, local_input.numel()), local_input.reshape(1, -1)
        if not _share_storage(output, local_input):
            parts.copy_(source)
        else:  # in-place all-gather: this rank's part is in its place already
            index = (local_input.data_ptr() - output.data_ptr()) // (local_input.numel() * local_input.element_size())
            parts[:index].copy_(source)
            parts[index + 1 :].copy_(source)
    return output, _finished_work()


def _reduce_scatter(output: Tensor, full_input: Tensor, *_: Any) -> tuple[Tensor, Any]:
    with record_function(STAND_IN):
        if not _share_storage(output, full_input):
            output.view(-1).copy_(full_input.reshape(-1)[: output.numel()])
    return output, _finished_work()


def _share_storage(left: Tensor, right: Tensor) -> bool:
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


def _coalesced(collective: Callable[..., tuple[Tensor, Any]]) -> Callable[..., Any]:
    def apply(outputs: Sequence[Tensor], inputs: Sequence[Tensor], *_: Any) -> Any:
        for output, local_input in zip(outputs, inputs, strict=True):
            collective(output, local_input)
        return _finished_work()

    return apply


def _all_to_all(output: Tensor, local_input: Tensor, *_: Any) -> Any:
    """Receives from peers as many rows as this rank sends them; zeros if more are requested."""
    with record_function(STAND_IN):
        target, source = output.view(-1), local_input.reshape(-1)
        common_elements = min(target.numel(), source.numel())
        target[:common_elements].copy_(source[:common_elements])
        target[common_elements:].zero_()
    return _finished_work()


def _all_reduce(tensors: Sequence[Tensor], *_: Any) -> tuple[Sequence[Tensor], Any]:
    """Leaves the tensors unchanged; the future has them, since DDP reads the result from it."""
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
    future.set_result(list(tensors))
    return tensors, _create_work_from_future(future).boxed()


def _receive(tensors: Sequence[Tensor], *_: Any) -> Any:
    with record_function(STAND_IN):
        for tensor in tensors:
            if tensor.is_floating_point():
                tensor.detach().uniform_(-ACTIVATION_BOUND, ACTIVATION_BOUND)
    return _finished_work()


_STAND_INS: dict[str, Callable[..., Any]] = {
    "_allgather_base_": _all_gather,
    "allgather_into_tensor_coalesced_": _coalesced(_all_gather),
    "_reduce_scatter_base_": _reduce_scatter,
    "reduce_scatter_tensor_coalesced_": _coalesced(_reduce_scatter),
    "alltoall_base_": _all_to_all,
    "allreduce_": _all_reduce,
    "recv_": _receive,
}
"""Replacements by torch's name of the collective. All others keep the fake group's, which leave tensors unchanged."""
