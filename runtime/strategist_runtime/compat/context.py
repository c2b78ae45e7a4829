"""torch's context parallelism, through its private names; and attention masks, with the kernels that use them.

Two kinds of attention. ``sdpa`` is ring attention: torch's dispatcher intercepts fused kernels with sharded arguments, and
passes keys and values around (arXiv 2310.01889). ``flex`` gathers keys and values (arXiv 2407.21783), so any mask is possible.
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

SEQUENCE_DIMENSION = 2
"""The token dimension of queries, keys and values, [B, N, T, D]."""

Mask = Tensor | BlockMask
"""The keys that each query attends to: a boolean for each pair, or blocks for the kernel that skips empty ones."""

CPU_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
CPU_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def parallelize_attention(core: nn.Module, mesh: DeviceMesh, attention: str, rotate: str) -> None:
    """Makes a module of (query, key, value), of which each rank has a slice of the sequence, attend to the whole sequence."""
    kinds = ring._ContextParallel.AttentionType
    kind = kinds.SDPA if attention == "sdpa" else kinds.FLEX
    parallelize_module(core, mesh, ring._ContextParallel(seq_dim=SEQUENCE_DIMENSION, attention_type=kind))
    if attention == "sdpa":
        ring.set_rotate_method(rotate)
        register_cpu_kernel()
        ring._enable_context_parallel_dispatcher()


def shard_sequence(mesh: DeviceMesh, rows: Sequence[Tensor], order: Tensor | None) -> list[Tensor]:
    """This rank's slice of each of ``rows`` [B, S], in ``order`` [1 or B, S]; None keeps their order.

    The ring learns from this call whether slices consist of head and tail, so until the step ends no row may be sliced differently.
    """
    balancer = None if order is None else _FixedOrder(order)
    return cast(list[Tensor], ring._context_parallel_shard(mesh, rows, [1] * len(rows), balancer))


def head_tail_order(tokens: int, ranks: int, device: torch.device) -> Tensor:
    """The order [S] that gives each rank a slice of the head and one of the tail: equal work under a causal mask."""
    return _HeadTailLoadBalancer(tokens, ranks, device)._generate_indices()[0].long()


def head_tail_order_per_document(lengths: Sequence[int], ranks: int, device: torch.device) -> Tensor:
    """The order [S] that gives each rank head and tail of each document of a row; 2 x ranks must divide all lengths.

    torch 2.13 splits each document into parts for all ranks, but then slices the row, not the documents, so that a rank gets
    whole documents. This order puts the parts of each rank together.
    """
    indices = _PerDocumentHeadTailLoadBalancer([list(lengths)], ranks, device)._generate_indices()[0]
    return torch.cat([part.view(ranks, -1) for part in indices.split(list(lengths))], dim=1).flatten()


class _FixedOrder(_LoadBalancer):
    """A load balancer with a given order."""

    def __init__(self, order: Tensor) -> None:
        self.order = order

    def _generate_indices(self, restore: bool = False) -> Tensor:
        return self.order.argsort() if restore else self.order


def mask(mask_mod: Callable[..., Tensor], rows: int, queries: int, keys: int, device: torch.device) -> Mask:
    """The mask of a function of row, head, query and key, the same for all heads: a block mask on CUDA, a boolean tensor
    elsewhere.
    """
    if device.type == "cuda":
        return _compiled(create_block_mask)(mask_mod, rows, None, queries, keys, device=device)
    return create_mask(mask_mod, rows, 1, queries, keys, device=device)


def masked_attention(query: Tensor, key: Tensor, value: Tensor, attention_mask: Mask) -> Tensor:
    """Attention [B, N, T, D] under a mask; ``key`` and ``value`` may have fewer heads and more tokens.

    FlexAttention has no backward pass on CPU, so the mask there has an element for each pair.
    """
    grouped = query.shape[1] != key.shape[1]
    if isinstance(attention_mask, BlockMask):
        return _compiled(flex_attention)(query, key, value, block_mask=attention_mask, enable_gqa=grouped)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, enable_gqa=grouped)


def masked_attention_with_sinks(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask, scores: Tensor) -> Tensor:
    """``masked_attention`` on CUDA with an attention sink: one more score [N] in each softmax, with value 0."""
    grouped = query.shape[1] != key.shape[1]
    mixed, total = _compiled(flex_attention)(query, key, value, block_mask=block_mask, enable_gqa=grouped, return_lse=True)
    return mixed * torch.sigmoid(total - scores[:, None]).unsqueeze(-1).to(mixed.dtype)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled function; uncompiled, FlexAttention would materialise all scores."""
    return torch.compile(function, dynamic=False)


@cache
def register_cpu_kernel() -> None:
    """Makes the ring support the CPU's fused attention: torch 2.13 registers only the kernels of CUDA."""
    sharded, replicated = Shard(SEQUENCE_DIMENSION), Replicate()

    def strategy(outputs: int, arguments: int) -> Callable[[OpSchema], OpStrategy]:
        placements = (sharded, replicated, Shard(0), Shard(1))
        choices: list[list[Placement | None]] = [[placement] * (outputs + arguments) for placement in placements]
        return lambda schema: expand_to_full_mesh_op_strategy(
            schema.get_mesh_from_args(validate=False), schema, choices, input_index=outputs
        )

    register_op_strategy(CPU_FORWARD, schema_info=RuntimeSchemaInfo(4))(strategy(2, 3))
    register_op_strategy(CPU_BACKWARD)(strategy(3, 6))
    ring.custom_ops |= {CPU_FORWARD: _dispatcher_handler(_forward), CPU_BACKWARD: _dispatcher_handler(_backward)}


def _dispatcher_handler(local: Callable[..., tuple[Tensor, ...]]) -> Callable[..., object]:
    """A handler for torch's dispatcher that runs ``local`` on this rank's slices, like torch's own handlers for CUDA."""

    def handle(operation: Any, arguments: tuple[object, ...], options: dict[str, object]) -> object:
        dispatcher = DTensor._op_dispatcher
        call = dispatcher.unwrap_to_op_info(operation, arguments, options)
        dispatcher.sharding_propagator.propagate(call)
        assert call.output_sharding is not None
        return dispatcher.wrap(local(call.compute_mesh, *call.local_args, **call.local_kwargs), call.output_sharding.output_spec)

    return handle


def _forward(
    mesh: DeviceMesh, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, **rest: Any
) -> tuple[Tensor, ...]:
    common = {"is_causal": is_causal, "dropout_p": dropout_p, **rest}
    return ring._templated_ring_attention(mesh.get_group(), SEQUENCE_DIMENSION, CPU_FORWARD, query, key, value, **common)


def _backward(
    mesh: DeviceMesh, grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, **rest: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    tensors = {"query": query, "key": key, "value": value, "out": out, "logsumexp": logsumexp}
    return ring._templated_ring_attention_backward(
        mesh.get_group(), SEQUENCE_DIMENSION, CPU_BACKWARD, grad_out=grad_out, grad_out_name="grad_out", **tensors,
        is_causal=is_causal, dropout_p=dropout_p, **rest,
    )  # fmt: skip
