"""Parameters that a module multiplies with its own tokens by plain matmuls, in any layout."""

from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate


def local_parameter(parameter: Tensor) -> Tensor:
    """What this rank holds of a parameter. Where all ranks hold the same, the gradient that comes back is this rank's share of a
    sum: each sees other tokens, or another part of what they become."""
    if not isinstance(parameter, DTensor):
        return parameter
    shares = [Partial() if isinstance(placement, Replicate) else placement for placement in parameter.placements]
    return parameter.to_local(grad_placements=shares)
