"""torchao: float8 linears, and AdamW with 8-bit states (arXiv 2209.05433, 2110.02861)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, precompute_float8_dynamic_scale_for_fsdp
from torchao.optim import AdamW8bit, adam

from strategist.contract.knobs import Knobs
from strategist_runtime.compat.compiler import compiled_on_gpus_only
from strategist_runtime.compat.dtensor import local


def convert_linears(layers: nn.Module, knobs: Knobs) -> None:
    """Converts the linears of the layers to float8, except routers; embedding and head are outside of the layers."""
    config = Float8LinearConfig.from_recipe_name(knobs.float8)
    if knobs.float8_all_gather:
        config = Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    convert_to_float8_training(layers, config=config, module_filter_fn=lambda _, name: "router" not in name)


def find_scales(model: nn.Module) -> None:
    """Computes the scales of all shards with one reduction after an update; otherwise each all-gather would compute its own."""
    precompute_float8_dynamic_scale_for_fsdp(model)


SLICE_ELEMENTS = 2**20
"""Elements of a parameter per slice of an uncompiled update; a multiple of the block size of the states."""

_unsliced_update = adam.single_param_adam


def _update(*arguments: Any) -> None:
    """torchao's update of one parameter. Arguments: parameter, gradient, step, two moments, then numbers.

    Compiled it is one kernel. Uncompiled (on CPU, and while collectives are counted) it would allocate ten fp32 tensors of the
    parameter's size, so it runs slice by slice.
    """
    if torch.compiler.is_compiling():
        _unsliced_update(*arguments)
        return
    parameter, gradient, step, *moments = arguments[:5]
    flat = [local(parameter).view(-1), local(gradient).reshape(-1), *(local(moment).view(-1) for moment in moments)]
    elements = flat[0].numel()
    for begin in range(0, elements, SLICE_ELEMENTS):
        slices = [tensor[begin : min(begin + SLICE_ELEMENTS, elements)] for tensor in flat]
        _unsliced_update(slices[0], slices[1], step, *slices[2:], *arguments[5:])


@contextmanager
def _update_in_slices() -> Iterator[None]:
    """Context in which torchao's optimizers use ``_update``: they look up the function by its name, and have no parameter for
    another.
    """
    adam.single_param_adam = _update
    try:
        yield
    finally:
        adam.single_param_adam = _unsliced_update


class EightBitAdamW(AdamW8bit):  # type: ignore[misc]
    """AdamW with 8-bit states; each update is one compiled kernel on GPUs, and runs slice by slice elsewhere."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        with compiled_on_gpus_only(), _update_in_slices():
            super().step(closure)


def adamw8bit(groups: Any, **settings: Any) -> torch.optim.Optimizer:
    """AdamW with 8-bit states; those of tensors with fewer than 4096 elements keep the type of the parameter."""
    return EightBitAdamW(groups, **settings)
