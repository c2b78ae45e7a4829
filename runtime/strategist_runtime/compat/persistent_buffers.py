"""``nn.Module`` features that torch exposes under private names only."""

from collections.abc import Iterator

from torch import Tensor, nn


def persistent_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The persistent buffers of a module, without those of its children, by name."""
    for name, buffer in module.named_buffers(recurse=False):
        if name not in module._non_persistent_buffers_set:
            yield name, buffer
