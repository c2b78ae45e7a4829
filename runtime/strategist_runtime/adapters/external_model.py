"""Wraps an external model (not the native decoder) in the ``Decoder`` interface: layers by number, and the compute type."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn

from strategist_runtime.model.decoder import ParallelizableModel, StageSpec

LAYERS = "layers"


class Layers:
    """The layers by their number, with a ``Decoder``'s interface."""

    def __init__(self, stack: nn.ModuleList | nn.Sequential) -> None:
        self.stack = stack

    def values(self) -> Iterator[nn.Module]:
        return iter(self.stack)

    def __getitem__(self, number: str) -> nn.Module:
        return self.stack[int(number)]

    def __setitem__(self, number: str, layer: nn.Module) -> None:
        self.stack[int(number)] = layer


class ExternalModel(ParallelizableModel):
    """Wrapper of ``model``: tokens [B, T] to the model's output. ``stack_name`` is the name of its list of layers, relative to
    the wrapper.
    """

    embedding: nn.Module | None = None

    def __init__(self, model: Any, stack_name: str) -> None:
        super().__init__()
        self.model = model
        self.forward_context = nullcontext
        self.stack_name = stack_name
        self.stage_spec = StageSpec(layers=range(len(self._stack())))
        self.shared = [owners for owners in _parameter_owners(model).values() if len(owners) > 1]

    @property
    def layers(self) -> Layers:  # type: ignore[override]
        return Layers(self._stack())

    def _stack(self) -> nn.ModuleList | nn.Sequential:
        stack = self.get_submodule(self.stack_name)
        assert isinstance(stack, nn.ModuleList | nn.Sequential)
        return stack

    def tie(self) -> None:
        """Ties shared parameters again; to be called after each operation that replaces parameters."""
        for (first, name), *others in self.shared:
            for module, other in others:
                setattr(module, other, getattr(first, name))

    def forward(self, tokens: Tensor) -> Any:
        with self.forward_context():
            return self.model(tokens)

    def called(self, name: str) -> str:
        """The ``Decoder`` name of a parameter or module: ``layers.3.attention`` for, say, the model's own blocks.3.attention."""
        if name.startswith(self.stack_name + "."):
            return LAYERS + name[len(self.stack_name) :]
        return name.removeprefix("model.")

    def named_parts(self) -> Iterator[tuple[str, nn.Module]]:
        """Its layers, and the modules next to the list of layers and to its parents, with their ``Decoder`` names."""
        inner: nn.Module = self.model
        for step in (*self.stack_name.split(".")[1:], ""):
            for name, child in inner.named_children():
                if name != step:
                    yield (f"{LAYERS}.{name}" if step == "" else name), child
            inner = inner.get_submodule(step)


def largest_list(model: nn.Module) -> str | None:
    """The name of the module list with the most parameters, which is assumed to be the layers; None if there is no list."""
    lists = {name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential)}
    sizes = {name: sum(parameter.numel() for parameter in module.parameters()) for name, module in lists.items() if len(module)}
    return max(sizes, key=lambda name: sizes[name], default=None)


def _parameter_owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """The modules and names of each parameter, by the parameter's id."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            found.setdefault(id(parameter), []).append((module, name))
    return found
