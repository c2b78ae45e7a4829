"""Activation checkpointing of layers (arXiv 1604.06174): full, or selective, which recomputes only what is cheap (arXiv
2205.05198).
"""

from collections import Counter
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from torch.utils.checkpoint import CheckpointPolicy

from strategist.contract.knobs import Knobs
from strategist.contract.sac_policy import matmul_stride, saves_collectives
from strategist_runtime.compat.recompute import (
    ATTENTION,
    CHOICES,
    COLLECTIVES,
    MATMULS,
    Packing,
    checkpointed,
    selective_contexts,
)
from strategist_runtime.model.decoder import ParallelizableModel


def apply_activation_checkpointing(model: ParallelizableModel, knobs: Knobs, packing: Packing | None = None) -> None:
    """Wraps layers in activation checkpointing.

    ``full`` saves only each layer's input; ``selective`` also saves the outputs of ``saved_operations``. ``every_second_layer``
    wraps every second layer, beginning with the first. ``budget`` wraps nothing: the compiler chooses. Autograd saves the inputs
    of layers, ``packing`` the outputs of operations.
    """
    if knobs.recompute in ("none", "budget"):
        return
    contexts = {"context_fn": partial(_contexts, knobs.saved_operations, packing)} if knobs.recompute == "selective" else {}
    for index in model.stage_spec.layers:
        if knobs.recompute != "every_second_layer" or index % 2 == 0:
            model.layers[str(index)] = checkpointed(model.layers[str(index)], **contexts)


def _contexts(saved: str, packing: Packing | None) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return selective_contexts(_SavePolicy(saved), packing)


class _SavePolicy:
    """Policy for one pass of one layer; it counts matmuls, since it saves every n-th."""

    def __init__(self, saved: str) -> None:
        self.stride = matmul_stride(saved)
        self.others = ATTENTION | CHOICES | (COLLECTIVES if saves_collectives(saved) else frozenset())
        self.matmuls: Counter[bool] = Counter()

    def __call__(self, context: Any, operation: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        is_saved = operation in self.others or (operation in MATMULS and self._keeps_matmul(context.is_recompute))
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    def _keeps_matmul(self, is_recompute: bool) -> bool:
        count = self.matmuls[is_recompute]
        self.matmuls[is_recompute] += 1
        return self.stride > 0 and count % self.stride == 0
