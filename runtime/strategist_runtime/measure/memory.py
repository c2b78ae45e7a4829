"""Peak memory of a step: bytes allocated, what the rank executed at that time, and the capacity."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.rank_observation import Moment
from strategist_runtime import process
from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.measure.kernel_kinds import ENGINE, OPTIMIZER, on_cpu, spans_of
from strategist_runtime.measure.spans import MARK, UPDATE, span


def limit_memory(capacity_bytes: int, device: torch.device) -> None:
    """Holds this rank to so much memory of its device, where that has more."""
    if device.type == "cpu":
        process.hold_memory(capacity_bytes)
    elif (total := torch.cuda.get_device_properties(device).total_memory) > capacity_bytes:
        torch.cuda.set_per_process_memory_fraction(capacity_bytes / total, device)


def curve(notes: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Times in nanoseconds, and the bytes that live then beyond those that lived when the profile began; ``notes`` are times,
    addresses, and bytes, negative where they were freed.

    What a thread of gloo's frees is not noted. Nothing that a step makes outlives it, so of memory without a recorded free all that
    is known is that it lived when it was made.
    """
    notes = sorted(notes)
    made: dict[int, int] = {}
    freed = set()
    for index, (_, address, size) in enumerate(notes):
        if size > 0:
            made[address] = index
        elif address in made:
            freed.add(made.pop(address))
    points, running = [], 0
    for index, (when, _, size) in enumerate(notes):
        stays = size < 0 or index in freed
        points.append((when, running + size))
        running += size if stays else 0
    return points


def peak(points: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """When the most lived, and how much; nothing at time 0 where nothing was allocated."""
    return max(points, key=lambda point: point[1], default=(0, 0))


def moment(when: int, events: Sequence[Any]) -> Moment:
    """What this rank did at a time of its profile: the pass, and the module whose pass began last before."""

    def within(*names: str) -> bool:
        return any(begin <= when < end for begin, end in spans_of(events, *names))

    phase = "optimizer" if within(OPTIMIZER, UPDATE) else "backward" if within(ENGINE) else "forward"
    marks = [(event.start_ns(), event.name()) for event in events if event.name().startswith(MARK) and on_cpu(event)]
    last = max((mark for mark in marks if mark[0] <= when), default=(0, MARK))
    return Moment(phase=phase, module="" if phase == "optimizer" else last[1].removeprefix(MARK))


@contextmanager
def marked(modules: Iterable[tuple[str, nn.Module]], mark: Callable[[str], None] | None = None) -> Iterator[None]:
    """Within, the profiler, or ``mark``, learns when passes of these modules begin; what follows the head is the loss."""
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
    with span(MARK + name):
        pass


def modules(parts: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """What a model is made of at its top, layers, embedding and head; a compiled module takes no hook. A model whose code is not
    ours says itself what that is."""
    for part in parts:
        inner = part.module if isinstance(part, DistributedDataParallel) else part
        for name, child in getattr(inner, "named_parts", inner.named_children)():
            members = child.named_children() if isinstance(child, nn.ModuleDict | nn.ModuleList) else ()
            for path, member in [(f"{name}.{key}", member) for key, member in members] or [(name, child)]:
                if not _compiled(member):
                    yield path, member


def _compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def inner_tensors(tensor: Tensor) -> Iterator[Tensor]:
    """What a tensor consists of: a DTensor of its piece here, one of 8 bits of its codes and scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for part in (getattr(tensor, name) for name in names):
        if isinstance(part, Tensor):  # a DTensor names its mesh as well
            yield from inner_tensors(part)


def parameters(parts: Iterable[nn.Module]) -> Iterator[Tensor]:
    """What a model consists of, buffers too."""
    return (tensor for part in parts for tensor in (*part.parameters(), *part.buffers()))


def optimizer_states(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """What an optimizer keeps."""
    return (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))


def static_bytes(parts: Iterable[nn.Module], optimizer: torch.optim.Optimizer, others: Iterable[Tensor]) -> int:
    """Bytes that live between steps: parameters, optimizer states, ``others``, and DDP's gradient buckets; shared storage once."""
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
