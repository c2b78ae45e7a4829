"""torchao: float8 linears, and AdamW with states of 8 bits (arXiv 2209.05433, 2110.02861)."""

from typing import Any

import torch
from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, precompute_float8_dynamic_scale_for_fsdp
from torchao.optim import AdamW8bit

from strategist.contract.knobs import Knobs
from strategist_runtime.compat.compiler import compiled_on_gpus_only


def convert_linears(layers: nn.Module, knobs: Knobs) -> None:
    """Makes the layers' linears multiply in float8; embedding, router and head are none of them."""
    config = Float8LinearConfig.from_recipe_name(knobs.float8)
    if knobs.float8_all_gather:
        config = Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    convert_to_float8_training(layers, config=config, module_filter_fn=lambda _, name: "router" not in name)


def find_scales(model: nn.Module) -> None:
    """After an update: one reduction finds the scales of all shards, which each gather would else look for by itself."""
    precompute_float8_dynamic_scale_for_fsdp(model)


class EightBitAdamW(AdamW8bit):  # type: ignore[misc]
    """Computes each update in one compiled kernel on GPUs."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        with compiled_on_gpus_only():
            super().step(closure)


def adamw8bit(groups: Any, **settings: Any) -> torch.optim.Optimizer:
    """States of tensors with fewer than 4096 elements stay in the type of the parameter."""
    return EightBitAdamW(groups, **settings)
