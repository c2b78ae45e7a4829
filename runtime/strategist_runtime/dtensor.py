"""What a rank holds of a tensor that ranks share."""

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Partial


def local(value: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return value.to_local() if isinstance(value, DTensor) else value


def local_share(value: Tensor) -> Tensor:
    """A value that all ranks have whole and each uses for its own heads: the gradient is the sum of theirs."""
    return value.to_local(grad_placements=[Partial()] * value.device_mesh.ndim) if isinstance(value, DTensor) else value


def arrived(value: Tensor) -> Tensor:
    """What this rank holds of a tensor, once the collective that makes it is over for the current stream."""
    mine = value._local_tensor if isinstance(value, DTensor) else value
    return mine.wait() if isinstance(mine, AsyncCollectiveTensor) else mine


def like(value: Tensor) -> Callable[[Tensor], Tensor]:
    """What makes of a rank's part a tensor that ranks share as they do ``value``."""
    return partial(_shared, value._spec) if isinstance(value, DTensor) else _itself


def _shared(spec: object, mine: Tensor) -> Tensor:
    return DTensor(mine, spec, requires_grad=False)


def _itself(mine: Tensor) -> Tensor:
    return mine


def paste(local: Tensor, offsets: tuple[int, ...], start: int, values: Tensor) -> None:
    """Copies what of some whole rows, from row ``start`` on, lies in ``local``, the window of a matrix at ``offsets``."""
    first, left = offsets
    low, high = max(first, start), min(first + local.shape[0], start + values.shape[0])
    if low < high:
        local[low - first : high - first].copy_(values[low - start : high - start, left : left + local.shape[1]])
