"""Muon (arXiv 2502.16982): torch's own, which on shards would exchange them in each of its iterations."""

from collections.abc import Callable
from typing import Any

import torch

from strategist_runtime.compat.dtensor import whole_matrices


class Muon(torch.optim.Muon):
    """A matrix that lies in pieces is gathered once a step, in bf16, and each rank keeps its own piece of what comes out.

    torch's is right on DTensors too, with 11 to 32 collectives for each matrix.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        with whole_matrices():
            super().step()
