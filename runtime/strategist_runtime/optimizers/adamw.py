"""AdamW with both moments in bf16 (arXiv 2412.19437, section 3.3.3)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from strategist_runtime.compat import kernels
from strategist_runtime.compat.dtensor import local, placed_like

BETAS = (0.9, 0.95)
"""DeepSeek-V3's betas (section 4.2). With torch's 0.999 a new square changes the mean by less than the precision of bf16, so it
would never change.
"""

CHUNK_ELEMENTS = 2**24
"""Most elements per update whose moments are in fp32 at the same time."""


class AdamWBf16(torch.optim.AdamW):
    """Stores moments in bf16 and computes in fp32, a few tensors at a time; torch's kernels need moments in the parameters'
    type.
    """

    def __init__(self, groups: Any, **settings: Any) -> None:
        super().__init__(groups, **{"betas": BETAS, **settings})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for parameters in _chunks([parameter for parameter in group["params"] if parameter.grad is not None]):
                self._update(parameters, group)

    def _update(self, parameters: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        states = [self._state(parameter, group) for parameter in parameters]
        stored_moments = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")]
        moments = [
            [local(moment).to(parameter.dtype) for moment, parameter in zip(stored, parameters, strict=True)]
            for stored in stored_moments
        ]
        adamw(
            [local(parameter) for parameter in parameters],
            [local(placed_like(parameter.grad, parameter)) for parameter in parameters if parameter.grad is not None],
            moments[0],
            moments[1],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            maximize=False,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            foreach=group["foreach"],
            fused=group["fused"],
        )
        for stored, computed in zip(stored_moments, moments, strict=True):
            kernels.copy([local(moment) for moment in stored], computed)

    def _state(self, parameter: nn.Parameter, group: dict[str, Any]) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            # torch's fused kernels need the step count on the parameter's device.
            state["step"] = torch.zeros((), device=local(parameter).device if group["fused"] else None)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        return state


def _chunks(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    chunk: list[nn.Parameter] = []
    elements = 0
    for parameter in parameters:
        size = local(parameter).numel()
        if chunk and elements + size > CHUNK_ELEMENTS:
            yield chunk
            chunk, elements = [], 0
        chunk.append(parameter)
        elements += size
    if chunk:
        yield chunk
