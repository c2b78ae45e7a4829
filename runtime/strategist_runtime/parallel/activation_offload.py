"""Activation offload: saved activations are stored in host memory until the backward pass (arXiv 1602.08124), layer by layer.

A tensor is copied to the host as soon as autograd saves it, and back one layer before the backward pass needs it, on separate
streams. A tensor that several operations save is copied once. Weights stay on the device, including the views and casts of them
that autograd saves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from strategist_runtime.compat.device import has_values
from strategist_runtime.compat.dtensor import local, shard_like, version_of, wait_for_local
from strategist_runtime.model.attention_metadata import AttentionMetadata
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.parallel.copy_streams import Copy, CopyThrottle, Lane

MIN_BYTES = {"cuda": 1 << 18, "cpu": 0}
"""Smallest tensor to offload, by device type: for smaller ones the launch of a copy takes longer than the copy."""


PLAIN_TENSORS = (Tensor, nn.Parameter)
"""Tensor classes that own their memory; tensors of other classes are not offloaded."""


class OffloadedTensor:
    """One saved tensor: on the device, or on the host and, after ``fetch``, being copied back. Only autograd holds a strong
    reference.
    """

    def __init__(self, tensor: Tensor, away: Copy | None) -> None:
        self.source = StorageWeakRef(tensor.untyped_storage())  # while it exists, no other storage gets this address
        self.here = tensor if away is None else None
        self.away, self.back = away, None if away is not None else Copy(tensor=tensor)

    def fetch(self, lane: Lane) -> None:
        if self.back is None and self.away is not None:
            self.back = lane.to_device(self.away)

    def on_device(self) -> Tensor:
        assert self.back is not None
        return self.back.on_device()


@dataclass(kw_only=True, eq=False)
class OffloadBuffer:
    """The saved tensors of one layer in one forward pass.

    ``before`` is the buffer of the previous layer, which backward runs next. ``stays``: tensors stay on the device, since the
    layer is the last of the model and backward starts with it.
    """

    owner: "OffloadBuffers"
    before: "OffloadBuffer | None"
    stays: bool
    layer: nn.Module
    metadata: AttentionMetadata
    kept: "WeakValueDictionary[Any, OffloadedTensor]" = field(default_factory=WeakValueDictionary)
    sent: torch.cuda.Event | None = None
    begun: bool = False

    def pack(self, tensor: Tensor) -> "Tensor | OffloadedActivation":
        """The pack hook: the object that autograd holds instead of a saved tensor."""
        mine = wait_for_local(tensor)
        if (
            (type(mine) not in PLAIN_TENSORS and has_values(mine))
            or mine.device != self.owner.device
            or mine.nbytes < MIN_BYTES[mine.device.type]
        ):
            return tensor
        if self._stays_there(tensor, mine):
            return tensor
        place = StorageWeakRef(mine.untyped_storage())
        key = (place, mine.storage_offset(), mine.shape, mine.stride(), mine.dtype, version_of(tensor))
        kept = self.kept.get(key)
        if kept is None:
            kept = self.kept[key] = OffloadedTensor(mine.detach(), None if self.stays else self.send(mine.detach()))
        return OffloadedActivation(buffer=self, kept=kept, wrapped=shard_like(tensor))

    def begin(self) -> None:
        """Begins the layer's backward pass: fetches its tensors and those of the previous layer. Before that, the host waits
        until the device has finished all but the latest layer in backward, so that the activations of at most three layers
        are on the device.
        """
        if not self.begun:
            self.begun = True
            self.owner.turns.begin()
            self.fetch()
            if self.before is not None:
                self.before.fetch()

    def fetch(self) -> None:
        for kept in list(self.kept.values()):
            kept.fetch(self.owner.incoming)

    def send(self, tensor: Tensor) -> Copy:
        """Starts the copy to the host."""
        into = torch.empty_like(tensor) if self.owner.outgoing.stream is None else None  # on CPU: separate memory, as on a device
        copy = self.owner.outgoing.to_host(tensor, into)
        self.sent = copy.done
        return copy

    def _stays_there(self, tensor: Tensor, mine: Tensor) -> bool:
        """Whether the tensor stays on the device: weights, and tensors that all layers share."""
        return _address(mine) in self._resident() or _is_cast_weight(tensor)

    def _resident(self) -> set[int]:
        """Current addresses of the layer's parameters and buffers and of shared metadata; not cached, since FSDP2 gathers and
        frees parameters meanwhile.
        """
        rotary = self.metadata.rotary
        shared = [
            self.metadata.positions,
            self.metadata.mask,
            self.metadata.windowed,
            *((rotary.cos, rotary.sin) if rotary else ()),
        ]
        found = [tensor for tensor in shared if isinstance(tensor, Tensor)]
        for module in self.layer.modules():
            found += [local(tensor) for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))]
        return {_address(tensor) for tensor in found} - {0}


@dataclass(frozen=True, kw_only=True)
class OffloadedActivation:
    """The object that autograd holds for an offloaded tensor; ``wrapped`` turns the local shard into the kind of tensor that was
    saved.
    """

    buffer: OffloadBuffer
    kept: OffloadedTensor
    wrapped: Any

    def unpack(self) -> Tensor:
        self.buffer.begin()
        self.kept.fetch(self.buffer.owner.incoming)
        tensor: Tensor = self.wrapped(self.kept.on_device())
        return tensor


def unpack(saved: "Tensor | OffloadedActivation") -> Tensor:
    """The unpack hook: the saved tensor, on the device."""
    return saved.unpack() if isinstance(saved, OffloadedActivation) else saved


class OffloadBuffers:
    """Activation offload of one rank's part of a model: an ``OffloadBuffer`` for each layer and forward pass."""

    def __init__(self, model: Decoder, device: torch.device) -> None:
        self.device = device
        self.outgoing, self.incoming = Lane(device), Lane(device)
        self.last = max(model.stage_spec.layers, default=-1) if model.stage_spec.head else -1
        self.first = min(model.stage_spec.layers, default=-1)
        self.current: OffloadBuffer | None = None
        self.turns = CopyThrottle(device)

    @contextmanager
    def around(self, number: int, layer: nn.Module, metadata: AttentionMetadata) -> Iterator[None]:
        """Context of one layer's forward pass. The host first waits until the layer two before this one has been copied to the
        host.
        """
        before = None if number == self.first else self.current
        if before is not None and before.before is not None and before.before.sent is not None:
            before.before.sent.synchronize()
        self.current = buffer = OffloadBuffer(owner=self, before=before, stays=number == self.last, layer=layer, metadata=metadata)
        with saved_tensors_hooks(buffer.pack, unpack):
            yield

    def pack(self, tensor: Tensor) -> "Tensor | OffloadedActivation":
        """The pack hook of the current layer, for tensors that are saved without autograd's hooks."""
        assert self.current is not None
        return self.current.pack(tensor)


def offload_activations(model: Decoder, buffers: OffloadBuffers) -> None:
    """Makes the layers of ``model`` store what autograd saves on the host."""
    model.around = partial(OffloadBuffers.around, buffers)


def _address(tensor: Tensor) -> int:
    """The address of a tensor's memory; in a simulation, where tensors have none, the identity of its storage."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() if has_values(tensor) else StorageWeakRef(storage).cdata


def _is_cast_weight(tensor: Tensor) -> bool:
    """Whether the tensor is a parameter, or a cast or transposed one, as autocast makes them."""
    if isinstance(tensor, nn.Parameter):
        return True
    node = tensor.grad_fn
    while node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return isinstance(parameter := getattr(node, "variable", None), nn.Parameter) and parameter.numel() == tensor.numel()
