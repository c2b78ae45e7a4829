"""TorchTitan's Llama 3 of the wheel 0.2.2, its model's file alone: what it imports for configurations, data and logs stays out."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from strategist.contract.model import ModelShape

BARE = ("torchtitan", "torchtitan.models.llama3")
"""Packages without what they import of themselves."""

STAND_INS = ("torchtitan.components", "torchtitan.config", "torchtitan.protocols.train_spec", "torchtitan.tools.logging")
"""Modules of which the model needs names for annotations only."""


class _Base(nn.Module):
    """What a model inherits of TorchTitan's: its configuration, which it is given."""

    def __init__(self, *_: object) -> None:
        super().__init__()


class _Anything(types.ModuleType):
    """A module with any class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Base,), {})


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``STAND_INS`` and all below."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        there = any(name == known or name.startswith(f"{known}.") for known in STAND_INS)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if there else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


def llama(shape: ModelShape, seq_len: int) -> nn.Module:
    """A model of the shape on the default device, with first values."""
    _stand_in()
    args = importlib.import_module("torchtitan.models.llama3.model.args").TransformerModelArgs(
        dim=shape.hidden_size, n_layers=shape.layers, n_heads=shape.heads, n_kv_heads=shape.kv_heads, vocab_size=shape.vocab_size,
        multiple_of=shape.ffn_size, ffn_dim_multiplier=shape.ffn_size / (4 * shape.hidden_size), rope_theta=shape.rope_theta,
        max_seq_len=seq_len,
    )  # fmt: skip
    model: nn.Module = importlib.import_module("torchtitan.models.llama3.model.model").Transformer(args)
    with torch.no_grad():
        model.init_weights()  # type: ignore[operator]
    return model


def _stand_in() -> None:
    found = find_spec("torchtitan")  # looks, and runs nothing
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("torchtitan is not here: prepare fetches its wheel")
    (place,) = found.submodule_search_locations
    sys.meta_path.insert(0, _StandIns())
    for name in BARE:
        package = types.ModuleType(name)
        package.__path__ = ["/".join([place, *name.split(".")[1:]])]
        sys.modules[name] = package
