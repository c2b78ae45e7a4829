"""DDP's reducer for tensors without values, which torch's own (in C++) does not support: the same buckets, filled, reduced and
emptied at the same times (arXiv 2006.15704).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from strategist_runtime.compat.data_parallel import assigned_to_buckets, at_end_of_backward
from strategist_runtime.compat.dtensor import key_of

Hook = Callable[[Any, Any], torch.futures.Future[Tensor]]


@dataclass(kw_only=True)
class Bucket:
    """The gradients of some parameters in one tensor; same interface for communication hooks as ``dist.GradBucket``."""

    number: int
    last: bool
    members: Sequence[nn.Parameter]
    flat: Tensor
    missing: int = 0
    reduced: torch.futures.Future[Tensor] | None = None
    views: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        views = self.flat.split([parameter.numel() for parameter in self.members])
        self.views = [view.view(parameter.shape) for view, parameter in zip(views, self.members, strict=True)]
        self.missing = len(self.members)

    def index(self) -> int:
        return self.number

    def is_last(self) -> bool:
        return self.last

    def buffer(self) -> Tensor:
        return self.flat

    def gradients(self) -> list[Tensor]:
        return self.views

    def parameters(self) -> Sequence[nn.Parameter]:
        return self.members


class Reducer:
    """Interface of torch's reducer, as far as ``DistributedDataParallel`` uses it; arguments in the order of its constructor."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        assignment: Sequence[Sequence[int]],
        _limits: object,
        group: dist.ProcessGroup,
        expect_sparse: Sequence[bool],
        bucket_bytes: int,
        find_unused: bool,
        as_views: bool,
        _names: object,
        first_bucket_bytes: int,
        *_others: object,
    ) -> None:
        self.parameters, self.group, self.expect_sparse = list(parameters), group, list(expect_sparse)
        self.limits = [first_bucket_bytes, bucket_bytes]
        self.find_unused, self.as_views, self.static = find_unused, as_views, False
        self.used = torch.zeros(len(self.parameters), dtype=torch.int32)
        self.hook: Hook | None = None
        self.hook_state: Any = None
        self.copies_back, self.rebuilt, self.expecting = True, False, False
        self.arrived: list[int] = []
        self._fill(assignment)
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(lambda parameter, index=index: self._arrive(index, parameter))

    def tensors(self) -> Iterator[Tensor]:
        """The buckets, which live between steps."""
        return (bucket.flat for bucket in self.buckets)

    def hook_tensors(self) -> Iterator[Tensor]:
        """Tensors that a communication hook keeps between steps: PowerSGD's error feedback and its matrices."""
        for state in getattr(self.hook_state, "args", ()):
            if isinstance(state, PowerSGDState):
                yield from (*state.error_dict.values(), *state.p_memory_dict.values(), *state.q_memory_dict.values())

    def register_hook(self, state: Any, hook: Hook) -> None:
        self.hook, self.hook_state = hook, state

    def set_logger(self, _logger: object) -> None:
        """Does nothing."""

    def prepare_for_forward(self) -> None:
        """Does nothing."""

    def prepare_for_backward(self, _outputs: Sequence[Tensor]) -> None:
        """Makes the next backward pass reduce gradients; without this call they accumulate in the parameters."""
        self.expecting = True
        for bucket in self.buckets:
            bucket.missing = len(bucket.members)

    def rebuild_buckets(self) -> bool:
        """Rebuilds the buckets once, after a backward pass has shown the order of gradients. Returns whether it did."""
        if self.rebuilt or not self.arrived or (self.find_unused and not self.static):
            return False
        self.rebuilt = True
        inside: list[Tensor] = [self.parameters[index] for index in self.arrived]
        sparse = [self.expect_sparse[index] for index in self.arrived]
        self._fill(assigned_to_buckets(inside, self.limits, sparse, self.arrived))
        return True

    _rebuild_buckets = rebuild_buckets  # DDP's name for it

    def _set_static_graph(self) -> None:
        self.static = True

    def _delay_all_reduce(self) -> None:
        """Does nothing: torch reduces everything at the end of a static graph's first step; here that step reduces like later
        ones.
        """

    def _set_optimizer_in_backward(self) -> None:
        self.copies_back = False

    def _fill(self, assignment: Sequence[Sequence[int]]) -> None:
        self.buckets: list[Bucket] = []
        self.bucket_positions: dict[int, tuple[Bucket, int]] = {}
        for number, indices in enumerate(assignment):
            members = [self.parameters[index] for index in indices]
            size = sum(parameter.numel() for parameter in members)
            flat = torch.empty(size, dtype=members[0].dtype, device=members[0].device)
            bucket = Bucket(number=number, last=number == len(assignment) - 1, members=members, flat=flat)
            self.bucket_positions |= {index: (bucket, position) for position, index in enumerate(indices)}
            self.buckets.append(bucket)

    @torch.no_grad()
    def _arrive(self, index: int, parameter: nn.Parameter) -> None:
        if not self.expecting:
            return
        self.arrived += [] if self.rebuilt else [index]
        bucket, position = self.bucket_positions[index]
        view, gradient = bucket.views[position], parameter.grad
        assert gradient is not None
        if key_of(gradient.untyped_storage()) != key_of(view.untyped_storage()):
            view.copy_(gradient) if self.hook is not None else torch.mul(gradient, 1 / self.group.size(), out=view)
            if self.as_views:
                parameter.grad = view
        elif self.hook is None:
            view.div_(self.group.size())
        bucket.missing -= 1
        if not bucket.missing:
            self._reduce(bucket)

    def _reduce(self, bucket: Bucket) -> None:
        if self.hook is None:
            dist.all_reduce(bucket.flat, group=self.group, async_op=True)
        else:
            bucket.reduced = self.hook(self.hook_state, bucket)
        if all(not other.missing for other in self.buckets):
            if self.find_unused and not self.static:
                dist.all_reduce(self.used, group=self.group, async_op=True)
            at_end_of_backward(self._finish)

    @torch.no_grad()
    def _finish(self) -> None:
        """Copies the buckets into the gradients, at the end of the backward pass."""
        self.expecting = False
        for bucket in self.buckets:
            found, bucket.reduced = bucket.reduced, None
            if found is not None:
                bucket.flat.copy_(found.wait())
            if not self.copies_back or self.as_views:
                continue
            for parameter, view in zip(bucket.members, bucket.views, strict=True):
                if parameter.grad is not None:
                    parameter.grad.copy_(view)


class Logger:
    """Interface of torch's DDP logger, without effect."""

    def __init__(self, _reducer: Reducer) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments: None
