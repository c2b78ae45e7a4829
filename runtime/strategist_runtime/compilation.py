"""torch.compile, layer by layer: one graph serves all layers of a kind, and FSDP2 gathers between graphs (arXiv 2411.00284)."""

from collections.abc import Iterator

import torch
from torch import nn

from strategist.contract.knobs import Candidate
from strategist_runtime.compat.compiler import compiler_backend, prepare_compiler, set_activation_budget
from strategist_runtime.compat.dtensor import AwaitedCollective
from strategist_runtime.model.decoder import ParallelizableModel
from strategist_runtime.model.experts import MixtureOfExperts
from strategist_runtime.model.layer import Layer


def compile_layers(model: ParallelizableModel, candidate: Candidate, device: torch.device) -> None:
    """Has each layer compiled at its first call. ``recompute: budget`` is the compiler's choice of what a layer saves."""
    percent = candidate.knobs.recompute_budget_percent if candidate.knobs.recompute == "budget" else 100
    set_activation_budget(percent / 100)  # always: a process may have compiled another plan before
    prepare_compiler(device)
    if model.embedding is not None:
        model.embedding.register_forward_hook(lambda _module, _arguments, output: AwaitedCollective.apply(output))
    for layer in model.layers.values():
        for part in _graphs(layer):
            part.compile(fullgraph=candidate.options.fullgraph, backend=compiler_backend(device))


def _graphs(layer: nn.Module) -> Iterator[nn.Module]:
    """What of a layer becomes a graph: the layer, but of one with a mixture of experts its attention, as how many rows each expert
    gets is known only when they are there."""
    for module in layer.modules():
        if isinstance(module, Layer) and isinstance(module.feed_forward, MixtureOfExperts):
            yield module.attention
            return
    yield layer
