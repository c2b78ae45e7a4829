"""Peak memory of a step: bytes allocated, what the rank executed at that time, and the memory limit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.rank_observation import Moment
from strategist_runtime import rank_process
from strategist_runtime.compat.compiler import is_compiled
from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.measure.kernel_kinds import ENGINE, OPTIMIZER, on_cpu, spans_of
from strategist_runtime.measure.spans import MODULE_PREFIX, UPDATE, span


def limit_memory(capacity_bytes: int, device: torch.device) -> None:
    """Limits this rank to ``capacity_bytes`` of device memory, if the device has more."""
    if device.type == "cpu":
        rank_process.limit_memory(capacity_bytes)
    elif (total := torch.cuda.get_device_properties(device).total_memory) > capacity_bytes:
        torch.cuda.set_per_process_memory_fraction(capacity_bytes / total, device)


def curve(events: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Memory over a profile: times in nanoseconds, and live bytes beyond those at the profile's begin. ``events`` are times,
    addresses, and bytes (negative if freed).

    The profiler does not record frees by gloo's threads. Nothing that a step allocates outlives it, so memory without a recorded
    free counts at its allocation only.
    """
    events = sorted(events)
    live: dict[int, int] = {}
    freed = set()
    for index, (_, address, size) in enumerate(events):
        if size > 0:
            live[address] = index
        elif address in live:
            freed.add(live.pop(address))
    points, running = [], 0
    for index, (time_ns, _, size) in enumerate(events):
        is_freed = size < 0 or index in freed
        points.append((time_ns, running + size))
        running += size if is_freed else 0
    return points


def peak(points: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Time and size of the peak; (0, 0) if nothing was allocated."""
    return max(points, key=lambda point: point[1], default=(0, 0))


def moment(time_ns: int, events: Sequence[Any]) -> Moment:
    """The pass (forward, backward or optimizer) at a time of the profile, and the module whose pass began last before it."""

    def in_span_of(*names: str) -> bool:
        return any(begin <= time_ns < end for begin, end in spans_of(events, *names))

    phase = "optimizer" if in_span_of(OPTIMIZER, UPDATE) else "backward" if in_span_of(ENGINE) else "forward"
    marks = [(event.start_ns(), event.name()) for event in events if event.name().startswith(MODULE_PREFIX) and on_cpu(event)]
    last = max((mark for mark in marks if mark[0] <= time_ns), default=(0, MODULE_PREFIX))
    return Moment(phase=phase, module="" if phase == "optimizer" else last[1].removeprefix(MODULE_PREFIX))


@contextmanager
def marked(modules: Iterable[tuple[str, nn.Module]], mark: Callable[[str], None] | None = None) -> Iterator[None]:
    """Context in which the profiler (or ``mark``) records when passes of these modules begin; after the head comes the loss."""
    with ExitStack() as hooks:
        for name, module in modules:
            for handle in _hooks(name, module, mark or _mark):
                hooks.callback(handle.remove)
        yield


def _hooks(name: str, module: nn.Module, mark: Callable[[str], None]) -> Iterator[Any]:
    def entering(*_: object) -> None:
        mark(name)

    def leaving(_module: nn.Module, _inputs: object, output: object) -> None:
        if name == "head":
            mark("loss")
        if isinstance(output, Tensor) and output.requires_grad and output.grad_fn is not None:
            output.register_hook(lambda _gradient: mark(name))

    yield module.register_forward_pre_hook(entering, prepend=True)
    yield module.register_forward_hook(leaving)


def _mark(name: str) -> None:
    with span(MODULE_PREFIX + name):
        pass


def modules(parts: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a model with their names: layers, embedding and head. External models name theirs in ``named_parts``.
    Compiled modules are left out, since they run no hooks.
    """
    for part in parts:
        inner = part.module if isinstance(part, DistributedDataParallel) else part
        for name, child in getattr(inner, "named_parts", inner.named_children)():
            members = child.named_children() if isinstance(child, nn.ModuleDict | nn.ModuleList) else ()
            for path, member in [(f"{name}.{key}", member) for key, member in members] or [(name, child)]:
                if not is_compiled(member):
                    yield path, member


def inner_tensors(tensor: Tensor) -> Iterator[Tensor]:
    """The plain tensors inside a tensor: of a DTensor its shard, of an 8-bit tensor its codes and scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for part in (getattr(tensor, name) for name in names):
        if isinstance(part, Tensor):  # names of a DTensor may include its mesh
            yield from inner_tensors(part)


def parameters(parts: Iterable[nn.Module]) -> Iterator[Tensor]:
    """A model's parameters and buffers."""
    return (tensor for part in parts for tensor in (*part.parameters(), *part.buffers()))


def optimizer_states(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """The tensors of an optimizer's states."""
    return (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))


def static_bytes(parts: Iterable[nn.Module], optimizer: torch.optim.Optimizer, others: Iterable[Tensor]) -> int:
    """Bytes that live between steps: parameters, optimizer states, ``others``, and DDP's gradient buckets; shared storages count
    once.
    """
    parts = tuple(parts)
    tensors = (*parameters(parts), *optimizer_states(optimizer), *others)
    storages = {
        key_of(part.untyped_storage()): part.untyped_storage().nbytes() for tensor in tensors for part in inner_tensors(tensor)
    }
    buckets = 0
    for part in parts:
        if isinstance(part, DistributedDataParallel):
            buckets += sum(
                parameter.numel() * parameter.element_size() for parameter in part.parameters() if parameter.requires_grad
            )
    return sum(storages.values()) + buckets
