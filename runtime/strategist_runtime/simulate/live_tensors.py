"""Live tensors of a step, tracked by storage."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from strategist.contract.rank_observation import Moment
from strategist_runtime.compat import simulate as compat_simulate
from strategist_runtime.compat.dispatch import DispatchMode, leaves
from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.compat.recompute import unwrapped
from strategist_runtime.measure import memory
from strategist_runtime.simulate import host_memory
from strategist_runtime.simulate.host_memory import HOST
from strategist_runtime.simulate.races import Races
from strategist_runtime.simulate.stream_memory import StreamReaders
from strategist_runtime.simulate.timeline import StorageOrigin, Timeline
from strategist_runtime.simulate.virtual_streams import HOST_LINE as HOST_LINE, StreamOrder

OPTIMIZER, LAYERS, CHUNKED_LOSS = "optimizer", "layers", "chunked_loss"
AFTER_LAYERS = ("head", "loss", CHUNKED_LOSS)
COPY, CONSTANT = torch.ops.aten.copy_.default, torch.ops.aten.lift_fresh.default


def storages(tensors: Iterable[Tensor]) -> Iterator[torch.UntypedStorage]:
    """The storages of tensors; meta tensors have none. ``device`` is an attribute of tensors without values, while torch asks
    all dispatch modes for ``is_meta``.
    """
    return (part.untyped_storage() for tensor in tensors for part in memory.inner_tensors(tensor) if part.device.type != "meta")


def layer_part(name: str) -> str:
    """The name of a module or parameter without its layer's number: ``layers.attention`` of ``layers.3.attention.query.weight``."""
    path = name.split(".")
    return ".".join((LAYERS, *path[2:3])) if path[0] == LAYERS else path[0]


class Live(DispatchMode):
    """Dispatch mode that tracks the storages that operators make or resize."""

    def __init__(self, races: Races | None = None, order: StreamOrder | None = None) -> None:
        super().__init__()
        self.races, self.order = races, order
        self._readers = StreamReaders(order) if order is not None and races is None else None
        self.timeline, self.flops, self.updating = Timeline(), 0, False
        self.finished = False  # frees after the step do not count
        self.module = self.layer_part = ""
        self.host_bytes = self.host_peak_bytes = 0
        self._on_host: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._moments: dict[tuple[str, str], Moment] = {}
        self._streams = {torch.cpu.current_stream(): 0}

    def hold(self, tensor: Tensor, part: str, module: str = "") -> None:
        """Counts a tensor that exists already."""
        for storage in storages([tensor]):
            self._record_storage(storage, StorageOrigin(part=part, module=module))

    @property
    def live_bytes(self) -> int:
        """Bytes that are live on the device now."""
        return sum(self._bytes.values())

    def copied(self, tensor: Tensor, waits: bool) -> Tensor:
        """A copy in the other memory: of a host tensor on the device, of a device tensor on the host. ``waits``: the host waits
        for it.
        """
        is_on_host = any(key_of(storage) in self._on_host for storage in storages([tensor]))
        with host_memory.creating_part("communication" if is_on_host else HOST):
            copy = tensor.clone()
        if self.races is not None and waits:
            self.races.order.current.synchronize()
        return copy

    def set_origin(self, tensor: Tensor, part: str, module: str | None = None) -> None:
        """Sets the part of memory (and module) of an existing tensor, which did not follow from the operator that made it."""
        for storage in storages([tensor]):
            number = self._numbers.get(key_of(storage))
            if number is not None:
                births = self.timeline.births
                births[number] = StorageOrigin(part=part, module=births[number].module if module is None else module)

    @contextmanager
    def tracking(self, parts: Sequence[nn.Module]) -> Iterator[None]:
        """Context of a step: tracks its operators, its resizes, and the begin of modules' passes."""
        self.timeline.begin = len(self.timeline.events)
        if self._readers is not None:
            self._readers.follow(self.timeline)
        with memory.marked(_modules(parts), self._enter), compat_simulate.watched_resizes(self._resized), self:
            yield
        if self._readers is not None:
            self._readers.end()
        self.finished = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and records its results; operators on tensor wrappers are dispatched again on the inner tensors.
        Reading a number returns 1, since tensors have no values.
        """
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        if func.namespace == "prim":  # asks for a property, such as the device
            return func(*args, **(kwargs or {}))
        if func is compat_simulate.SCALAR:
            if self.order is not None and key_of(args[0].untyped_storage()) not in self._on_host:  # the host waits for the number
                self.order.current.synchronize()
            return 1.0
        for gradient in compat_simulate.gradients_given(func, args):
            self.set_origin(gradient, "gradients")
        if func is compat_simulate.WAIT:  # returns its argument; only on tensors without values it would return a copy
            return args[0]
        argument_keys = {
            key_of(storage) for storage in storages(leaf for leaf in leaves([args, kwargs]) if isinstance(leaf, Tensor))
        }
        result = func(*args, **(kwargs or {}))
        if not compat_simulate.in_sharding_propagation():
            is_on_host = self.races is not None and self._runs_on_host(func, argument_keys)
            birth = StorageOrigin(part=HOST, module="") if is_on_host else self._birth(func.namespace)
            for storage in storages(leaf for leaf in leaves(result) if isinstance(leaf, Tensor)):
                self._record_storage(storage, birth)
            if self.races is not None:
                self._check_races(self.races, func, args, kwargs or {}, result, argument_keys)
            self.flops += compat_simulate.flops_of(func, args, kwargs or {}, result)
        return result

    def _runs_on_host(self, operator: Any, argument_keys: set[int]) -> bool:
        """Whether the host computes the result: all arguments are in host memory, or it is a constant."""
        return not host_memory.current_part() and (
            operator is CONSTANT or (bool(argument_keys) and argument_keys <= self._on_host.keys())
        )

    def _check_races(self, races: Races, operator: Any, arguments: Any, options: Any, result: Any, argument_keys: set[int]) -> None:
        """Passes an operation to ``races``: on the current stream, or on the host if all of its tensors are in host memory."""
        if operator is CONSTANT:
            return
        result_keys = {key_of(storage) for storage in storages(leaf for leaf in leaves(result) if isinstance(leaf, Tensor))}
        keys = argument_keys | result_keys
        host_keys = keys & self._on_host.keys()
        line = HOST_LINE if keys and host_keys == keys else races.order.current.line
        waits = operator is COPY and bool(host_keys) and not (len(arguments) > 2 and arguments[2])
        races.record(operator, arguments, options, result, line=line, waits=waits)

    def _enter(self, module: str) -> None:
        path = module.split(".")
        self.module = ".".join(path[:2]) if path[0] == LAYERS else module
        self.layer_part = layer_part(module)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        if self.races is not None:
            key = key_of(storage)
            self.races.make(key, self.races.order.current.line) if storage.nbytes() else self.races.free(key)
        self._record_storage(storage, self._birth(""))

    def _birth(self, namespace: str) -> StorageOrigin:
        """The origin of a new storage. Recomputation is recognised in the backward pass by enabled gradients, which no other
        operation has there.
        """
        if host_memory.current_part():
            part = host_memory.current_part()
        elif namespace in compat_simulate.COLLECTIVE_NAMESPACES:
            part = "communication"
        elif self.module == CHUNKED_LOSS and not compat_simulate.in_backward():  # its gradients are part of its forward pass
            part = "logits"
        elif self.updating or not torch.is_grad_enabled():
            part = "temporaries"
        else:
            part = "logits" if self.module in AFTER_LAYERS else "activations"
        return StorageOrigin(part=part, module=OPTIMIZER if self.updating else self.layer_part)

    def _record_storage(self, storage: torch.UntypedStorage, birth: StorageOrigin) -> None:
        key, size = key_of(storage), storage.nbytes()
        before = self._bytes.get(key)
        if before == size or key in self._on_host:
            return
        if before is None and birth.part == HOST:
            self._record_on_host(storage, key, size)
            return
        if before is None:
            self._numbers[key] = len(self.timeline.births)
            if self._readers is not None:
                self._readers.allocated(key)
            self.timeline.births.append(birth)
            compat_simulate.at_end(storage, lambda: self._record_free(key))
        self._bytes[key] = size
        self._record_event(self._numbers[key], size - (before or 0))

    def _record_on_host(self, storage: torch.UntypedStorage, key: int, size: int) -> None:
        self._on_host[key] = size
        self.host_bytes += size
        self.host_peak_bytes = max(self.host_peak_bytes, self.host_bytes)
        compat_simulate.at_end(storage, lambda: self._record_host_free(key))

    def _record_host_free(self, key: int) -> None:
        if self.races is not None:
            self.races.forget(key)
        self.host_bytes -= self._on_host.pop(key)

    def _record_free(self, key: int) -> None:
        if self.races is not None and not self.finished:
            self.races.free(key)
        self._record_event(self._numbers.pop(key), -self._bytes.pop(key))
        if self._readers is not None and not self.finished:
            self._readers.freed(key)

    def _record_event(self, number: int, change: int) -> None:
        if self.finished:
            return
        if self.updating:
            phase, module = OPTIMIZER, ""
        else:
            phase, module = "backward" if compat_simulate.in_backward() else "forward", self.module
        moment = self._moments.get((phase, module))
        if moment is None:
            moment = self._moments[phase, module] = Moment(phase=phase, module=module)
        # On CPU streams have no effect, but FSDP2 enters them as on a GPU.
        if stream := self._streams.setdefault(torch.cpu.current_stream(), len(self._streams)):
            self.timeline.streams[len(self.timeline.events)] = stream
        self.timeline.events.append((number, change, moment))


def _modules(parts: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """The parts of models (embedding, layers, head), and the modules of each layer."""
    for name, module in memory.modules(parts):
        yield name, module
        if name.startswith(f"{LAYERS}."):
            yield from ((f"{name}.{inside}", child) for inside, child in unwrapped(module).named_children())
