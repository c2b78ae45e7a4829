"""A decoder of a given shape, whole or one pipeline stage of it (arXiv 2302.13971, Radford et al. 2019).

Shapes: B sequences, T tokens, H hidden elements, V tokens of the vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.compat.recompute import without_checkpoint_wrapper
from strategist_runtime.model.attention_metadata import AttentionMetadata, MetadataBuilder
from strategist_runtime.model.layer import Layer
from strategist_runtime.model.norms import norm_of


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """The parts of a model in one stage: ``layers`` by their number; the embedding in the first stage; the last norm and the
    head in the last.
    """

    layers: Sequence[int]
    embedding: bool = True
    head: bool = True


class NumberedLayers(Protocol):
    """Layers by their number in the whole model, as a string."""

    def values(self) -> Iterable[nn.Module]:
        """All layers of the stage, first to last."""

    def __getitem__(self, number: str) -> nn.Module: ...

    def __setitem__(self, number: str, layer: nn.Module) -> None: ...


class ParallelizableModel(nn.Module):
    """Interface that the parallelism techniques need from every model, native or external."""

    stage_spec: StageSpec
    layers: NumberedLayers
    embedding: nn.Module | None
    forward_context: Callable[[], AbstractContextManager[None]]

    def tie(self) -> None:
        """Ties shared parameters again; to be called after each operation that replaces parameters."""
        raise NotImplementedError


class Decoder(ParallelizableModel):
    """The model, or a stage of it: tokens [B, T] to logits [B, T, V]; after the first stage the input, before the last one the
    output is hidden states [B, T, H].

    Build it on the meta device; ``metadata_builder`` is set together with the weights. Parameter names are those of the whole
    model. ``forward_context`` returns the context of the forward pass; ``layer_context`` the context of one layer, given its
    number, module and metadata. ``chunked_loss`` computes the loss of hidden states, the head's weight and targets.
    """

    metadata_builder: MetadataBuilder
    chunked_loss: nn.Module

    def __init__(self, shape: ModelShape, stage_spec: StageSpec | None = None) -> None:
        super().__init__()
        self.stage_spec = stage_spec or StageSpec(layers=range(shape.layers))
        self.tied = shape.tied_embeddings
        self.forward_context = nullcontext
        self.layer_context: Callable[[int, nn.Module, AttentionMetadata], AbstractContextManager[None]] = no_layer_context
        self.embedding: nn.Embedding | None = (
            nn.Embedding(shape.vocab_size, shape.hidden_size) if self.stage_spec.embedding else None
        )
        position_count = shape.learned_positions if self.stage_spec.embedding else 0
        self.positions = nn.Embedding(position_count, shape.hidden_size) if position_count else None
        self.layers: nn.ModuleDict = nn.ModuleDict({str(index): Layer(shape, index) for index in self.stage_spec.layers})
        self.norm = norm_of(shape) if self.stage_spec.head else None
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False) if self.stage_spec.head else None
        self.tie()

    def tie(self) -> None:
        """Makes the head share the embedding's weight if the shape ties them and both are in this stage; to be called after each
        operation that replaces parameters.
        """
        if self.tied and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(
        self, x: Tensor, documents: Tensor | None = None, order: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor:
        """Forward pass of this part: [B, T] token ids or [B, T, H] to [B, T, H] or logits [B, T, V]; with ``targets``, the loss.
        ``documents``, ``order`` and ``targets`` are the fields of ``Batch`` for these rows.
        """
        metadata = self.metadata_builder.build(documents, order)
        with self.forward_context():
            if self.embedding is not None:
                x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(torch.atleast_2d(metadata.positions))
            for number, layer in zip(self.stage_spec.layers, self.layers.values(), strict=True):
                with self.layer_context(number, layer, metadata):
                    x = layer(x, metadata)
            if self.norm is None or self.head is None:
                return x
            hidden = self.norm(x)
            return self.head(hidden) if targets is None else self.chunked_loss(hidden, self.head.weight, targets)


def no_layer_context(_number: int, _layer: nn.Module, _metadata: AttentionMetadata) -> AbstractContextManager[None]:
    """Default context of a layer's forward pass: does nothing."""
    return nullcontext()


def plain_names(parts: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of all parts of a model, by their names in the whole model without wrappers."""
    for part in parts:
        for name, parameter in part.named_parameters():
            yield plain_name(name), parameter


def balance_biases(parts: Iterable[nn.Module], shape: ModelShape) -> Iterator[tuple[str, Tensor]]:
    """The routers' balance biases: buffers that belong to a model's weights, by their plain names."""
    if shape.moe is not None and shape.moe.router_balance_bias:
        for name, buffer in (item for part in parts for item in part.named_buffers()):
            if name.endswith("router.balance_bias"):
                yield plain_name(name), buffer


def plain_name(name: str) -> str:
    """The name of a parameter or a module without the names of its wrappers."""
    return without_checkpoint_wrapper(name.removeprefix("module."))
