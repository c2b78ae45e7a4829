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

RowsOf = Callable[[str, int, range], Iterator[tuple[int, Tensor]]]
"""Reads rows of a matrix: from its name, number of columns and range of rows to blocks that cover the range, each with its first
row and its values.
"""


class LoRALinear(nn.Linear):
    """``x W^T + scale (x A^T) B^T``: A [rank, in] and B [out, rank] are trained; W [out, in] and the bias are frozen.

    A and B are stored in fp32 and used in the type of ``x``. Under tensor parallelism W is sharded by its outputs (``cut`` 0: B
    is sharded as well, A is replicated) or by its inputs (``cut`` 1: A is sharded as well, B is replicated). Gradients of a
    replicated matrix are summed over the ranks. Partial outputs are reduced once, both terms together.
    """

    lora_a: nn.Parameter
    lora_b: nn.Parameter
    scale: float
    cut: int | None

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, DTensor) or self.cut is None:
            y = self._sum(x, self.lora_a, self.lora_b)
            return y if self.bias is None else y + self.bias
        summed = (Partial(),)
        came: tuple[Partial] | None
        goes: Placement
        if self.cut == 0:
            a, b, came, goes = _local_shard(self.lora_a, summed), _local_shard(self.lora_b), summed, Shard(x.dim() - 1)
        else:
            a, b, came, goes = _local_shard(self.lora_a), _local_shard(self.lora_b, summed), None, Partial()
        y = DTensor.from_local(self._sum(_local_shard(x, came), a, b), x.device_mesh, (goes,), run_check=False)
        return y if self.bias is None else y + self.bias

    def _sum(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Both terms, of this rank's shards."""
        return self._frozen(x) + F.linear(F.linear(x, a.to(x.dtype)) * self.scale, b.to(x.dtype))

    def _frozen(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight if self.cut is None else local(self.weight))


class Quantised(LoRALinear):
    """A ``LoRALinear`` whose W is stored in 4 bits, as three tensors of bytes."""

    codes: nn.Parameter
    constants: nn.Parameter
    rows: nn.Parameter

    def _frozen(self, x: Tensor) -> Tensor:
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
    linear.scale, linear.cut = scale, _sharded_dimension(weight)
    whole = Replicate()
    placements = {0: (whole, Shard(0)), 1: (Shard(1), whole), None: (whole, whole)}[linear.cut]
    shapes = (rank, weight.shape[1]), (weight.shape[0], rank)
    linear.lora_a, linear.lora_b = (_empty_parameter(shape, weight, how) for shape, how in zip(shapes, placements, strict=True))


def _quantise(linear: nn.Linear) -> None:
    """Replaces W [out, in] by three tensors [out, ...] of bytes with W's sharding; ``rows``, which holds values of a whole row,
    is not sharded by columns.
    """
    weight = linear.weight
    linear.__class__ = Quantised
    assert isinstance(linear, Quantised)
    linear.register_parameter("weight", None)
    for name, width in nf4.sizes(weight.shape[1]).items():
        how = Replicate() if linear.cut is None or (linear.cut == 1 and name == "rows") else Shard(linear.cut)
        setattr(linear, name, _empty_parameter((weight.shape[0], width), weight, how, torch.uint8))


def _sharded_dimension(weight: Tensor) -> int | None:
    """The dimension that tensor parallelism shards; None if the weight is not a DTensor or is replicated."""
    if not isinstance(weight, DTensor):
        return None
    (placement,) = weight.placements
    return placement.dim if isinstance(placement, Shard) else None


def _empty_parameter(shape: tuple[int, int], like: Tensor, how: Placement, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    """An empty parameter with placement ``how`` on the mesh of ``like``, if that has one; floating-point ones are trained, bytes
    are not.
    """
    empty = torch.empty(shape, device=like.device, dtype=dtype)
    if isinstance(like, DTensor):
        empty = distribute_tensor(empty, like.device_mesh, (how,), src_data_rank=None)
    return nn.Parameter(empty, requires_grad=dtype.is_floating_point)


def _local_shard(value: Tensor, gradient: tuple[Placement, ...] | None = None) -> Tensor:
    """This rank's shard, with autograd; ``gradient`` are the placements of its gradient."""
    return value.to_local(grad_placements=gradient) if isinstance(value, DTensor) else value


def quantise(model: nn.Module, rows_of: RowsOf) -> None:
    """Fills the 4-bit weights of a model that has storage: a rank reads (or draws) the whole rows of its shards and quantises
    them.
    """
    for name, module in model.named_modules():
        if isinstance(module, Quantised):
            _, columns = module.global_shape()
            pieces = {part: local_part(getattr(module, part)) for part in nf4.sizes(columns)}
            first = min(offsets[0] for _, _, offsets in pieces.values())
            last = max(offsets[0] + lengths[0] for _, lengths, offsets in pieces.values())
            for start, values in rows_of(f"{plain_name(name)}.weight", columns, range(first, last)):
                for part, quantised in nf4.quantise(values).items():
                    local_piece, _, offsets = pieces[part]
                    copy_rows(local_piece, offsets, start, quantised)
