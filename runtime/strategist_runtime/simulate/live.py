"""Which tensors live, and how much at the fullest instant: followed through a step, storage by storage."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strategist.contract.measurement import Moment
from strategist_runtime import compat_simulate
from strategist_runtime.measure import memory

OPTIMIZER = "optimizer"
AFTER_LAYERS = ("head", "loss")


@dataclass(frozen=True, kw_only=True)
class Birth:
    """What made a storage: its part of memory, unless somebody knows it better, and the module whose pass it was."""

    part: str
    module: str


@dataclass(frozen=True, kw_only=True)
class Instant:
    """All that lived when the most did: bytes by storage, and the births of what was not there before the step."""

    moment: Moment
    bytes_of: Mapping[int, int]
    births: Mapping[int, Birth]


def storages(tensors: Iterable[Tensor]) -> Iterator[torch.UntypedStorage]:
    """The memory in which tensors lie."""
    return (part.untyped_storage() for tensor in tensors for part in memory.plain(tensor))


class Live(TorchDispatchMode):
    """Follows the storages that operators make or resize within it. After event number ``at``, as a run before has found it,
    ``inspect`` is called with the instant: without values a step does the same each time."""

    def __init__(self, at: int | None = None, inspect: Callable[[Instant], None] | None = None) -> None:
        super().__init__()
        self.at, self.inspect = at, inspect
        self.bytes_of: dict[int, int] = {}
        self.births: dict[int, Birth] = {}
        self.now = self.peak = self.events = self.peak_event = self.flops = 0
        self.updating, self.module = False, ""

    def hold(self, tensors: Iterable[Tensor]) -> None:
        """Counts what is there already."""
        for storage in storages(tensors):
            self._see(storage, None)

    @contextmanager
    def following(self, parts: Sequence[nn.Module]) -> Iterator[None]:
        """Around a step: its operators, resizes, and the modules that are entered."""
        with memory.marked(parts, self._enter), compat_simulate.watched_resizes(self._resized), self:
            yield

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and looks at what it made; what wraps tensors is seen again as what it does with them. There are no
        values: a number that is read is 1."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        if func is compat_simulate.SCALAR:
            return 1.0
        result = func(*args, **(kwargs or {}))
        if not compat_simulate.propagating():
            birth = self._birth(func.namespace)
            for storage in storages(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)):
                self._see(storage, birth)
            self.flops += compat_simulate.flops_of(func, args, kwargs or {}, result)
        return result

    def _enter(self, module: str) -> None:
        self.module = module

    def _resized(self, storage: torch.UntypedStorage) -> None:
        self._see(storage, self._birth(""))

    def _birth(self, namespace: str) -> Birth:
        """Recomputation runs in the backward pass with gradients enabled, as nothing else there does."""
        if namespace in compat_simulate.COMMUNICATING:
            part = "communication"
        elif self.updating or not torch.is_grad_enabled():
            part = "temporaries"
        else:
            part = "logits" if self.module in AFTER_LAYERS else "activations"
        return Birth(part=part, module=OPTIMIZER if self.updating else self.module)

    def _see(self, storage: torch.UntypedStorage, birth: Birth | None) -> None:
        key, size = compat_simulate.key_of(storage), storage.nbytes()
        before = self.bytes_of.get(key)
        if before == size:
            return
        if before is None:
            compat_simulate.at_end(storage, lambda: self._forget(key))
            if birth is not None:
                self.births[key] = birth
        self.bytes_of[key] = size
        self.now += size - (before or 0)
        self.events += 1
        if self.now > self.peak:
            self.peak, self.peak_event = self.now, self.events
        if self.events == self.at and self.inspect is not None:
            self.inspect(Instant(moment=self._moment(), bytes_of=dict(self.bytes_of), births=dict(self.births)))

    def _forget(self, key: int) -> None:
        self.now -= self.bytes_of.pop(key, 0)
        self.births.pop(key, None)

    def _moment(self) -> Moment:
        if self.updating:
            return Moment(phase=OPTIMIZER)
        return Moment(phase="backward" if compat_simulate.in_backward() else "forward", module=self.module)
