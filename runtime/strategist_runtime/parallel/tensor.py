"""Tensor parallelism: the first matmul of each pair split by columns, the second by rows (arXiv 1909.08053); sequence
parallelism (arXiv 2205.05198).
"""

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

from strategist.contract.knobs import Knobs
from strategist.contract.model import ModelShape
from strategist_runtime.model.decoder import Decoder, StageSpec
from strategist_runtime.model.experts import MixtureOfExperts


def apply_tensor_parallel(model: Decoder, mesh: DeviceMesh, shape: ModelShape, knobs: Knobs) -> None:
    """Splits heads, feed-forward and vocabulary over ``mesh``; between the blocks activations (the residual stream) are replicated,
    or sharded by sequence.
    """
    residual_placement = Shard(1) if knobs.sequence_parallel else Replicate()
    if model.embedding is not None:
        model.embedding = VocabParallelEmbedding(model.embedding, mesh, residual_placement)
    if model.positions is not None:
        model.positions = VocabParallelEmbedding(model.positions, mesh, residual_placement)
    parallelize_module(model, mesh, _head_styles(model.stage_spec, residual_placement, knobs))
    model.tie()
    for layer in model.layers.values():
        feed_forward = layer.get_submodule("feed_forward")
        styles = _attention_styles(shape, residual_placement) | _feed_forward_styles(feed_forward, residual_placement)
        if knobs.sequence_parallel:
            styles |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        parallelize_module(layer, mesh, styles)


class VocabParallelEmbedding(nn.Embedding):
    """An embedding whose rows are sharded over ``mesh``. Each rank looks up the tokens in its rows, fills in zeros for all others,
    and the sum over ranks is the result.

    torch's ``RowwiseParallel`` would give every rank a gradient of all rows, which stays that large while FSDP2 postpones its
    reduction (docs/decisions/2026-11-21-embedding-gradient-under-tensor-parallelism.md).
    """

    def __init__(self, embedding: nn.Embedding, mesh: DeviceMesh, residual_placement: Shard | Replicate) -> None:
        rows = distribute_tensor(embedding.weight, mesh, [Shard(0)])
        super().__init__(
            embedding.num_embeddings, embedding.embedding_dim, _weight=rows, _freeze=not embedding.weight.requires_grad
        )
        self.residual_placement = residual_placement
        self.first_row = mesh.get_local_rank() * -(-embedding.num_embeddings // mesh.size())

    def forward(self, input: Tensor) -> Tensor:
        assert isinstance(self.weight, DTensor)
        rows = self.weight.to_local()
        row = input - self.first_row
        outside = (row < 0) | (row >= len(rows))
        embedded = F.embedding(row.masked_fill(outside, 0), rows).masked_fill(outside.unsqueeze(-1), 0)
        partial_sum = DTensor.from_local(embedded, self.weight.device_mesh, [Partial()], run_check=False)
        return partial_sum.redistribute(placements=[self.residual_placement], async_op=True).to_local()


def _head_styles(stage_spec: StageSpec, residual_placement: Shard | Replicate, knobs: Knobs) -> dict[str, ParallelStyle]:
    """Styles of a stage's last norm and head."""
    styles: dict[str, ParallelStyle] = {}
    if stage_spec.head:
        styles["head"] = ColwiseParallel(
            input_layouts=residual_placement,
            output_layouts=Shard(-1) if knobs.loss_parallel else Replicate(),
            use_local_output=not knobs.loss_parallel,
        )
    if stage_spec.head and knobs.sequence_parallel:
        styles["norm"] = SequenceParallel()
    return styles


def _attention_styles(shape: ModelShape, residual_placement: Shard | Replicate) -> dict[str, ParallelStyle]:
    """Styles of attention: one all-gather before and one reduction after; the column-parallel matmuls share the gathered input."""
    styles: dict[str, ParallelStyle] = {
        "attention": PrepareModuleInput(input_layouts=(residual_placement, None), desired_input_layouts=(Replicate(), None)),
        "attention.query": ColwiseParallel(),
        "attention.output": RowwiseParallel(output_layouts=residual_placement),
    }
    if shape.mla is not None:
        latents = ("latent", "latent_norm", *(("query_down", "query_norm") if shape.mla.query_rank else ()))
        return (
            styles | {f"attention.{name}": ReplicatedParameters() for name in latents} | {"attention.key_value": ColwiseParallel()}
        )
    styles |= {"attention.key": ColwiseParallel(), "attention.value": ColwiseParallel()}
    if shape.attention_sinks:
        styles["attention.core"] = HeadShardedParameters()
    if shape.qk_norm:
        # Each rank normalises its own heads (dim 2) with the same weights, whose gradients must be summed over tp.
        heads = SequenceParallel(sequence_dim=2, use_local_output=True)
        styles |= {"attention.query_norm": heads, "attention.key_norm": heads}
    return styles


class ReplicatedParameters(ParallelStyle):
    """Replicated parameters, for an input that is replicated as well."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh)


class HeadShardedParameters(ParallelStyle):
    """Parameters sharded by head (dimension 0); the module uses the local shard."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, nn.Parameter(distribute_tensor(parameter, device_mesh, [Shard(0)])))
        return module


def _feed_forward_styles(module: nn.Module, residual_placement: Shard | Replicate) -> dict[str, ParallelStyle]:
    """Styles of a layer's feed-forward; none for a mixture of experts, which experts.py parallelizes."""
    if isinstance(module, MixtureOfExperts):
        return {}
    styles: dict[str, ParallelStyle] = {
        "feed_forward": PrepareModuleInput(input_layouts=(residual_placement,), desired_input_layouts=(Replicate(),)),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=residual_placement),
    }
    return styles | ({"feed_forward.gate": ColwiseParallel()} if module.gate is not None else {})
