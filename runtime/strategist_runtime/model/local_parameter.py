"""Local use of DTensor parameters in plain matmuls, with correct gradients."""

from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate


def local_parameter(parameter: Tensor) -> Tensor:
    """This rank's shard of a parameter. Where a parameter is replicated, its gradient is this rank's partial sum, since each
    rank has other tokens or another part of their computation.
    """
    if not isinstance(parameter, DTensor):
        return parameter
    grad_placements = [Partial() if isinstance(placement, Replicate) else placement for placement in parameter.placements]
    return parameter.to_local(grad_placements=grad_placements)
