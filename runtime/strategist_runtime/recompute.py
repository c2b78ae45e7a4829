"""Activation checkpointing, layer by layer (arXiv 1604.06174), whole or of what is cheap to compute again (arXiv 2205.05198)."""

from functools import partial
from typing import Any

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy

from strategist_runtime import compat
from strategist_runtime.compat_recompute import selective_contexts
from strategist_runtime.model.decoder import Decoder


def apply_recompute(model: Decoder, recompute: str) -> None:
    """Wraps layers: ``full`` keeps a layer's input only, ``selective`` the outputs of matmuls and attention as well, ``alternate``
    does the first to every second layer, beginning with the first. ``budget`` wraps nothing: it is the compiler's.
    """
    if recompute in ("none", "budget"):
        return
    contexts = {"context_fn": partial(selective_contexts, _policy)} if recompute == "selective" else {}
    for index in model.piece.layers:
        if recompute != "alternate" or index % 2 == 0:
            model.layers[str(index)] = checkpoint_wrapper(
                model.layers[str(index)], checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False, **contexts
            )


def _policy(_context: Any, operation: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    kept = operation in compat.SAVED_OPERATIONS
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
