"""The tensor parallel plan of a transformers model, translated to torch's parallel styles."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel, parallelize_module

from strategist.errors import InputError

STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "sequence_parallel": SequenceParallel,
    # A norm of each rank's own heads: heads are independent, and the gradient of its weight is a sum over ranks, as with sharded
    # sequences.
    "replicated_with_grad_allreduce": lambda: SequenceParallel(sequence_dim=0, use_local_output=True),
}
"""torch's styles by transformers' names (transformers.distributed.tensor_parallel)."""

UNSPLIT = "replicate"


def apply_tensor_parallel(wrapped: nn.Module, model: Any, mesh: DeviceMesh, *, loss_parallel: bool) -> None:
    """Splits a meta model of transformers, which is ``wrapped.model``, over ``mesh``; with ``loss_parallel`` logits stay sharded.
    Tied parameters must be tied again afterwards.

    Raises:
        InputError: the model has no plan, or one with a style that torch's APIs do not have.
    """
    plan = dict(model.tp_plan or {})
    kind = model.config.model_type
    if not plan:
        raise InputError(f"tp {mesh.size()}", f"transformers has no tensor-parallel plan for {kind}", "choose tp 1")
    for name, style in plan.items():
        if style not in STYLES and style != UNSPLIT:
            law = f"is split as {style!r} by transformers' plan for {kind}, which torch's parallel APIs do not have"
            raise InputError(f"tp {mesh.size()}: {name}", law, "choose tp 1")
    styles = {f"model.{name}": STYLES[style]() for name, style in plan.items() if style != UNSPLIT}
    if loss_parallel:
        styles[_head(wrapped, model)] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(wrapped, mesh, styles)


def _head(wrapped: nn.Module, model: Any) -> str:
    head = model.get_output_embeddings()
    return next(name for name, module in wrapped.named_modules() if module is head)
