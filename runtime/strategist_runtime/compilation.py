"""torch.compile by layer: all layers of a kind share one graph, and FSDP2 gathers between graphs (arXiv 2411.00284)."""

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
    """Makes each layer compile at its first call. With ``recompute: budget`` the compiler chooses what a layer saves."""
    percent = candidate.knobs.recompute_budget_percent if candidate.knobs.recompute == "budget" else 100
    set_activation_budget(percent / 100)  # also 100 %: this process may have compiled another plan before
    prepare_compiler(device)
    if model.embedding is not None:
        model.embedding.register_forward_hook(lambda _module, _arguments, output: AwaitedCollective.apply(output))
    for layer in model.layers.values():
        for part in _graphs(layer):
            part.compile(fullgraph=candidate.options.fullgraph, backend=compiler_backend(device))


def _graphs(layer: nn.Module) -> Iterator[nn.Module]:
    """The modules of a layer that become graphs: the layer itself; with a mixture of experts only its attention, since the
    number of rows per expert is known at run time only.
    """
    for module in layer.modules():
        if isinstance(module, Layer) and isinstance(module.feed_forward, MixtureOfExperts):
            yield module.attention
            return
    yield layer
