"""Muon (arXiv 2502.16982): torch's own, without a collective in each iteration for sharded matrices."""

from collections.abc import Callable
from typing import Any

import torch

from strategist_runtime.compat.dtensor import whole_matrices


class Muon(torch.optim.Muon):
    """Gathers a sharded matrix once per step, in bf16; each rank keeps its own shard of the result.

    torch's Muon is correct on DTensors too, but with 11 to 32 collectives per matrix.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        with whole_matrices():
            super().step()
