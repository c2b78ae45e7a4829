"""LoRA (arXiv 2106.09685) and QLoRA (arXiv 2305.14314): a frozen model, with two low-rank matrices at each linear of its layers."""

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

from strategist.errors import InputError
from strategist_runtime.compat.dtensor import copy_rows, local, local_part
from strategist_runtime.model import nf4
from strategist_runtime.model.decoder import plain_name

ReadRows = Callable[[str, int, range], Iterator[tuple[int, Tensor]]]
"""Reads rows of a matrix: from its name, number of columns and range of rows to blocks that cover the range, each with its first
row and its values.
"""


class LoRALinear(nn.Linear):
    """``x W^T + scale (x A^T) B^T``: A [rank, in] and B [out, rank] are trained; W [out, in] and the bias are frozen.

    A and B are stored in fp32 and used in the type of ``x``. Under tensor parallelism W is sharded by its outputs
    (``shard_dimension`` 0: B is sharded as well, A is replicated) or by its inputs (``shard_dimension`` 1: A is sharded as well, B
    is replicated). Gradients of a replicated matrix are summed over the ranks. Partial outputs are reduced once, both terms
    together.
    """

    lora_a: nn.Parameter
    lora_b: nn.Parameter
    scale: float
    shard_dimension: int | None

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, DTensor) or self.shard_dimension is None:
            y = self._output(x, self.lora_a, self.lora_b)
            return y if self.bias is None else y + self.bias
        partial_sum = Partial()
        x_gradient: Partial | None
        y_placement: Placement
        if self.shard_dimension == 0:
            a, b = _local_shard(self.lora_a, partial_sum), _local_shard(self.lora_b)
            x_gradient, y_placement = partial_sum, Shard(x.dim() - 1)
        else:
            a, b = _local_shard(self.lora_a), _local_shard(self.lora_b, partial_sum)
            x_gradient, y_placement = None, Partial()
        y = DTensor.from_local(self._output(_local_shard(x, x_gradient), a, b), x.device_mesh, (y_placement,), run_check=False)
        return y if self.bias is None else y + self.bias

    def _output(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Both terms, of this rank's shards."""
        return self._frozen_output(x) + F.linear(F.linear(x, a.to(x.dtype)) * self.scale, b.to(x.dtype))

    def _frozen_output(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight if self.shard_dimension is None else local(self.weight))


class QuantisedLoRALinear(LoRALinear):
    """A ``LoRALinear`` whose W is stored in 4 bits, as three tensors of bytes."""

    codes: nn.Parameter
    constants: nn.Parameter
    rows: nn.Parameter

    def _frozen_output(self, x: Tensor) -> Tensor:
        return nf4.FrozenLinear.apply(x, local(self.codes), local(self.constants), local(self.rows))

    def global_shape(self) -> tuple[int, int]:
        """The global shape of W."""
        return self.codes.shape[0], 2 * self.codes.shape[1]


def freeze(model: nn.Module, dtype: torch.dtype) -> None:
    """Freezes every parameter of a model on the meta device and casts it to ``dtype``; shared parameters stay shared."""
    frozen: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in frozen:
                frozen[parameter] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
            setattr(module, name, frozen[parameter])


def add_adapters(layers: Iterable[nn.Module], *, rank: int, alpha: float, quantised: bool) -> None:
    """Adds A and B to each linear of the layers of a frozen model on the meta device, after tensor parallelism has been applied."""
    found = list(linears(layers))
    if not found:
        raise InputError("train lora", "finds no linear in the layers of this model", "choose train full, or another model")
    for linear in found:
        _adapt(linear, rank, alpha / rank)
        if quantised:
            _quantise(linear)


def linears(layers: Iterable[nn.Module]) -> Iterator[nn.Linear]:
    """All linear modules of the layers, in attention and feed-forward."""
    for layer in layers:
        yield from (module for module in layer.modules() if isinstance(module, nn.Linear))


def _adapt(linear: nn.Linear, rank: int, scale: float) -> None:
    """Turns a linear into a ``LoRALinear`` in place, since tensor parallelism has registered hooks on it; A and B are stored in
    fp32.
    """
    weight = linear.weight
    linear.__class__ = LoRALinear
    assert isinstance(linear, LoRALinear)
    linear.scale, linear.shard_dimension = scale, _sharded_dimension(weight)
    replicated = Replicate()
    placements = {0: (replicated, Shard(0)), 1: (Shard(1), replicated), None: (replicated, replicated)}[linear.shard_dimension]
    shapes = (rank, weight.shape[1]), (weight.shape[0], rank)
    linear.lora_a, linear.lora_b = (_empty_parameter(weight, *each) for each in zip(shapes, placements, strict=True))


def _quantise(linear: nn.Linear) -> None:
    """Replaces W [out, in] by three tensors [out, ...] of bytes with W's sharding; ``rows``, which holds values of a whole row,
    is not sharded by columns.
    """
    weight = linear.weight
    linear.__class__ = QuantisedLoRALinear
    assert isinstance(linear, QuantisedLoRALinear)
    linear.register_parameter("weight", None)
    for name, width in nf4.sizes(weight.shape[1]).items():
        dimension = None if name == "rows" and linear.shard_dimension == 1 else linear.shard_dimension
        placement = Replicate() if dimension is None else Shard(dimension)
        setattr(linear, name, _empty_parameter(weight, (weight.shape[0], width), placement, torch.uint8))


def _sharded_dimension(weight: Tensor) -> int | None:
    """The dimension that tensor parallelism shards; None if the weight is not a DTensor or is replicated."""
    if not isinstance(weight, DTensor):
        return None
    (placement,) = weight.placements
    return placement.dim if isinstance(placement, Shard) else None


def _empty_parameter(
    like: Tensor, shape: tuple[int, int], placement: Placement, dtype: torch.dtype = torch.float32
) -> nn.Parameter:
    """An empty parameter with this placement on the mesh of ``like``, if that has one; floating-point ones are trained, bytes
    are not.
    """
    empty = torch.empty(shape, device=like.device, dtype=dtype)
    if isinstance(like, DTensor):
        empty = distribute_tensor(empty, like.device_mesh, (placement,), src_data_rank=None)
    return nn.Parameter(empty, requires_grad=dtype.is_floating_point)


def _local_shard(value: Tensor, gradient: Placement | None = None) -> Tensor:
    """This rank's shard, with autograd; ``gradient`` is the placement of its gradient."""
    if not isinstance(value, DTensor):
        return value
    return value.to_local(grad_placements=None if gradient is None else (gradient,))


def quantise(model: nn.Module, read_rows: ReadRows) -> None:
    """Fills the 4-bit weights of a model that has storage: a rank reads (or draws) the whole rows of its shards and quantises
    them.
    """
    for name, module in model.named_modules():
        if isinstance(module, QuantisedLoRALinear):
            _, columns = module.global_shape()
            shards = {tensor_name: local_part(getattr(module, tensor_name)) for tensor_name in nf4.sizes(columns)}
            first = min(offsets[0] for _, _, offsets in shards.values())
            last = max(offsets[0] + lengths[0] for _, lengths, offsets in shards.values())
            for start, values in read_rows(f"{plain_name(name)}.weight", columns, range(first, last)):
                for tensor_name, quantised in nf4.quantise(values).items():
                    local_rows, _, offsets = shards[tensor_name]
                    copy_rows(local_rows, offsets, start, quantised)
