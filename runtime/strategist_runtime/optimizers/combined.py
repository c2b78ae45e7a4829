"""Several optimizers, each with its own parameters, as one optimizer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

Named = tuple[str, nn.Parameter]


class CombinedOptimizer(torch.optim.Optimizer):
    """Shares the parameter groups and states of its parts (the same objects), so that it is saved and loaded like one optimizer."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = tuple(parts)
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for part in self.parts:
            part.step()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Loads a state and shares it with the parts again."""
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        first = 0
        for part in self.parts:
            part.state = self.state
            count = len(part.param_groups)
            part.param_groups = self.param_groups[first : first + count]
            first += count
