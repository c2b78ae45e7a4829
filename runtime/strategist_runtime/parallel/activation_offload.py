"""Activation offload: saved activations are stored in host memory until the backward pass (arXiv 1602.08124), layer by layer.

A tensor is copied to the host as soon as autograd saves it, and back one layer before the backward pass needs it, on separate
streams. A tensor that several operations save is copied once. Weights stay on the device, including the views and casts of them
that autograd saves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from strategist_runtime.parallel.copy_streams import Copy, CopyStream, CopyThrottle

MIN_BYTES = {"cuda": 1 << 18, "cpu": 0}
"""Smallest tensor to offload, by device type: for smaller ones the launch of a copy takes longer than the copy."""


PLAIN_TENSORS = (Tensor, nn.Parameter)
"""Tensor classes that own their memory; tensors of other classes are not offloaded."""


class OffloadedTensor:
    """One saved tensor: on the device, or on the host and, after ``fetch``, being copied back. Only autograd holds a strong
    reference.
    """

    def __init__(self, tensor: Tensor, host_copy: Copy | None) -> None:
        self.source = StorageWeakRef(tensor.untyped_storage())  # while it exists, no other storage gets this address
        self.host_copy, self.device_copy = host_copy, None if host_copy is not None else Copy(tensor=tensor)

    def fetch(self, stream: CopyStream) -> None:
        if self.device_copy is None and self.host_copy is not None:
            self.device_copy = stream.to_device(self.host_copy)

    def on_device(self) -> Tensor:
        assert self.device_copy is not None
        return self.device_copy.on_device()


@dataclass(kw_only=True, eq=False)
class OffloadBuffer:
    """The saved tensors of one layer in one forward pass.

    ``previous`` is the buffer of the previous layer, which backward runs next. With ``stays_on_device``
    nothing is copied: the layer is the last of the model and backward starts with it.
    """

    owner: "OffloadBuffers"
    previous: "OffloadBuffer | None"
    stays_on_device: bool
    layer: nn.Module
    metadata: AttentionMetadata
    tensors: "WeakValueDictionary[Any, OffloadedTensor]" = field(default_factory=WeakValueDictionary)
    last_copy_done: torch.cuda.Event | None = None
    backward_begun: bool = False

    def pack(self, tensor: Tensor) -> "Tensor | OffloadedActivation":
        """The pack hook: the object that autograd holds instead of a saved tensor."""
        local_tensor = wait_for_local(tensor)
        if (
            (type(local_tensor) not in PLAIN_TENSORS and has_values(local_tensor))
            or local_tensor.device != self.owner.device
            or local_tensor.nbytes < MIN_BYTES[local_tensor.device.type]
        ):
            return tensor
        if self._is_excluded(tensor, local_tensor):
            return tensor
        storage = StorageWeakRef(local_tensor.untyped_storage())
        view = (local_tensor.storage_offset(), local_tensor.shape, local_tensor.stride(), local_tensor.dtype)
        key = (storage, *view, version_of(tensor))
        saved = self.tensors.get(key)
        if saved is None:
            host_copy = None if self.stays_on_device else self.send(local_tensor.detach())
            saved = self.tensors[key] = OffloadedTensor(local_tensor.detach(), host_copy)
        return OffloadedActivation(buffer=self, saved=saved, rewrap=shard_like(tensor))

    def begin_backward(self) -> None:
        """Begins the layer's backward pass: fetches its tensors and those of the previous layer. Before that, the host waits
        until the device has finished all but the latest layer in backward, so that the activations of at most three layers
        are on the device.
        """
        if not self.backward_begun:
            self.backward_begun = True
            self.owner.throttle.begin()
            self.fetch()
            if self.previous is not None:
                self.previous.fetch()

    def fetch(self) -> None:
        for tensor in list(self.tensors.values()):
            tensor.fetch(self.owner.incoming)

    def send(self, tensor: Tensor) -> Copy:
        """Starts the copy to the host."""
        target = torch.empty_like(tensor) if self.owner.outgoing.stream is None else None  # on CPU: separate memory, as on a device
        copy = self.owner.outgoing.to_host(tensor, target)
        self.last_copy_done = copy.done
        return copy

    def _is_excluded(self, tensor: Tensor, local_tensor: Tensor) -> bool:
        """Whether the tensor stays on the device: weights, and tensors that all layers share."""
        return _address(local_tensor) in self._excluded_addresses() or _is_cast_weight(tensor)

    def _excluded_addresses(self) -> set[int]:
        """Current addresses of the layer's parameters and buffers and of shared metadata; not cached, since FSDP2 gathers and
        frees parameters meanwhile.
        """
        rotary = self.metadata.rotary
        shared = [
            self.metadata.positions,
            self.metadata.mask,
            self.metadata.window_mask,
            *((rotary.cos, rotary.sin) if rotary else ()),
        ]
        tensors = [tensor for tensor in shared if isinstance(tensor, Tensor)]
        for module in self.layer.modules():
            tensors += [local(tensor) for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))]
        return {_address(tensor) for tensor in tensors} - {0}


@dataclass(frozen=True, kw_only=True)
class OffloadedActivation:
    """The object that autograd holds for an offloaded tensor; ``rewrap`` turns the local shard into the kind of tensor that was
    saved.
    """

    buffer: OffloadBuffer
    saved: OffloadedTensor
    rewrap: Any

    def unpack(self) -> Tensor:
        self.buffer.begin_backward()
        self.saved.fetch(self.buffer.owner.incoming)
        tensor: Tensor = self.rewrap(self.saved.on_device())
        return tensor


def unpack(saved: "Tensor | OffloadedActivation") -> Tensor:
    """The unpack hook: the saved tensor, on the device."""
    return saved.unpack() if isinstance(saved, OffloadedActivation) else saved


class OffloadBuffers:
    """Activation offload of one rank's part of a model: an ``OffloadBuffer`` for each layer and forward pass."""

    def __init__(self, model: Decoder, device: torch.device) -> None:
        self.device = device
        self.outgoing, self.incoming = CopyStream(device), CopyStream(device)
        self.last_layer = max(model.stage_spec.layers, default=-1) if model.stage_spec.head else -1
        self.first_layer = min(model.stage_spec.layers, default=-1)
        self.current: OffloadBuffer | None = None
        self.throttle = CopyThrottle(device)

    @contextmanager
    def layer_context(self, index: int, layer: nn.Module, metadata: AttentionMetadata) -> Iterator[None]:
        """Context of one layer's forward pass. The host first waits until the layer two before this one has been copied to the
        host.
        """
        previous = None if index == self.first_layer else self.current
        if previous is not None and previous.previous is not None and previous.previous.last_copy_done is not None:
            previous.previous.last_copy_done.synchronize()
        self.current = buffer = OffloadBuffer(
            owner=self, previous=previous, stays_on_device=index == self.last_layer, layer=layer, metadata=metadata
        )
        with saved_tensors_hooks(buffer.pack, unpack):
            yield

    def pack(self, tensor: Tensor) -> "Tensor | OffloadedActivation":
        """The pack hook of the current layer, for tensors that are saved without autograd's hooks."""
        assert self.current is not None
        return self.current.pack(tensor)


def offload_activations(model: Decoder, buffers: OffloadBuffers) -> None:
    """Makes the layers of ``model`` store what autograd saves on the host."""
    model.layer_context = buffers.layer_context


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
