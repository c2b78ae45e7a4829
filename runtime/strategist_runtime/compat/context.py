"""Context parallelism as torch has it, by its private names; and masks, with the kernels that take them.

Two kinds of attention. ``sdpa`` is a ring: torch's dispatcher catches fused kernels whose arguments lie in slices, and passes
keys and values on (arXiv 2310.01889). ``flex`` gathers keys and values (arXiv 2407.21783), so that any mask will do.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import torch
import torch.distributed.tensor.experimental._context_parallel._attention as ring
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy, register_op_strategy
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _LoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
)
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

SEQUENCE = 2
"""The dimension of tokens in queries, keys and values, [B, N, T, D]."""

Mask = Tensor | BlockMask
"""Which key each query sees: true or false for each pair, or by blocks for the kernel that skips empty ones."""

CPU_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
CPU_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def parallelize_attention(core: nn.Module, mesh: DeviceMesh, attention: str, rotate: str) -> None:
    """Has a module of (query, key, value), each rank's slice of the sequence, attend to the whole of it."""
    kinds = ring._ContextParallel.AttentionType
    kind = kinds.SDPA if attention == "sdpa" else kinds.FLEX
    parallelize_module(core, mesh, ring._ContextParallel(seq_dim=SEQUENCE, attention_type=kind))
    if attention == "sdpa":
        ring.set_rotate_method(rotate)
        register_cpu_kernel()
        ring._enable_context_parallel_dispatcher()


def shard_sequence(mesh: DeviceMesh, rows: Sequence[Tensor], order: Tensor | None) -> list[Tensor]:
    """This rank's slice of each of ``rows`` [B, S], in ``order`` [1 or B, S]; None is the order that they have.

    The ring learns from this call whether slices are heads and tails, so none may be cut otherwise before the step ends.
    """
    given = None if order is None else _Given(order)
    return cast(list[Tensor], ring._context_parallel_shard(mesh, rows, [1] * len(rows), given))


def head_tail_order(tokens: int, ranks: int, on: torch.device) -> Tensor:
    """The order [S] that gives each rank a slice of the head and one of the tail: under a causal mask equally much work."""
    return _HeadTailLoadBalancer(tokens, ranks, on)._generate_indices()[0].long()


def head_tail_order_per_document(lengths: Sequence[int], ranks: int, on: torch.device) -> Tensor:
    """The order [S] that gives each rank head and tail of each document of a row; 2 x ranks divide all lengths.

    torch 2.13 puts document after document, each in shares for all ranks, and then cuts the row, not the documents: a rank gets
    whole documents. Here each rank's shares are brought together.
    """
    in_shares = _PerDocumentHeadTailLoadBalancer([list(lengths)], ranks, on)._generate_indices()[0]
    return torch.cat([part.view(ranks, -1) for part in in_shares.split(list(lengths))], dim=1).flatten()


class _Given(_LoadBalancer):
    """An order that is known already."""

    def __init__(self, order: Tensor) -> None:
        self.order = order

    def _generate_indices(self, restore: bool = False) -> Tensor:
        return self.order.argsort() if restore else self.order


def mask(sees: Callable[..., Tensor], rows: int, queries: int, keys: int, on: torch.device) -> Mask:
    """The mask of a function of row, head, query and key, the same for all heads: of blocks on CUDA, of pairs elsewhere."""
    if on.type == "cuda":
        return _compiled(create_block_mask)(sees, rows, None, queries, keys, device=on)
    return create_mask(sees, rows, 1, queries, keys, device=on)


def masked_attention(query: Tensor, key: Tensor, value: Tensor, seen: Mask) -> Tensor:
    """Attention [B, N, T, D] under a mask; ``key`` and ``value`` may have fewer heads and more tokens.

    FlexAttention has no backward pass on CPU, so there the mask is evaluated pair by pair.
    """
    grouped = query.shape[1] != key.shape[1]
    if isinstance(seen, BlockMask):
        return _compiled(flex_attention)(query, key, value, block_mask=seen, enable_gqa=grouped)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=grouped)


def masked_attention_with_sinks(query: Tensor, key: Tensor, value: Tensor, seen: BlockMask, scores: Tensor) -> Tensor:
    """The same with one more score [N] in each softmax, whose value is 0: what the others leave to it."""
    grouped = query.shape[1] != key.shape[1]
    mixed, total = _compiled(flex_attention)(query, key, value, block_mask=seen, enable_gqa=grouped, return_lse=True)
    return mixed * torch.sigmoid(total - scores[:, None]).unsqueeze(-1).to(mixed.dtype)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """FlexAttention without its compiled kernel holds all scores at once."""
    return torch.compile(function, dynamic=False)


@cache
def register_cpu_kernel() -> None:
    """Lets the ring pass through the CPU's fused attention: torch 2.13 registers those of CUDA only."""
    sliced, whole = Shard(SEQUENCE), Replicate()

    def strategy(outputs: int, arguments: int) -> Callable[[OpSchema], OpStrategy]:
        placements = (sliced, whole, Shard(0), Shard(1))
        choices: list[list[Placement | None]] = [[placement] * (outputs + arguments) for placement in placements]
        return lambda schema: expand_to_full_mesh_op_strategy(
            schema.get_mesh_from_args(validate=False), schema, choices, input_index=outputs
        )

    register_op_strategy(CPU_FORWARD, schema_info=RuntimeSchemaInfo(4))(strategy(2, 3))
    register_op_strategy(CPU_BACKWARD)(strategy(3, 6))
    ring.custom_ops |= {CPU_FORWARD: _dispatched(_forward), CPU_BACKWARD: _dispatched(_backward)}


def _dispatched(local: Callable[..., tuple[Tensor, ...]]) -> Callable[..., object]:
    """A handler of torch's dispatcher that runs ``local`` on the slices of this rank, as torch's own for CUDA."""

    def handle(operation: Any, arguments: tuple[object, ...], named: dict[str, object]) -> object:
        dispatcher = DTensor._op_dispatcher
        call = dispatcher.unwrap_to_op_info(operation, arguments, named)
        dispatcher.sharding_propagator.propagate(call)
        assert call.output_sharding is not None
        return dispatcher.wrap(local(call.compute_mesh, *call.local_args, **call.local_kwargs), call.output_sharding.output_spec)

    return handle


def _forward(
    mesh: DeviceMesh, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, **rest: Any
) -> tuple[Tensor, ...]:
    common = {"is_causal": is_causal, "dropout_p": dropout_p, **rest}
    return ring._templated_ring_attention(mesh.get_group(), SEQUENCE, CPU_FORWARD, query, key, value, **common)


def _backward(
    mesh: DeviceMesh, grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, **rest: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    tensors = {"query": query, "key": key, "value": value, "out": out, "logsumexp": logsumexp}
    return ring._templated_ring_attention_backward(
        mesh.get_group(), SEQUENCE, CPU_BACKWARD, grad_out=grad_out, grad_out_name="grad_out", **tensors,
        is_causal=is_causal, dropout_p=dropout_p, **rest,
    )  # fmt: skip
