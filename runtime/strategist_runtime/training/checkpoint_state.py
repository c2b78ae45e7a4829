"""State of a rank by name: model and optimizer tensors, for saving and for loading a checkpoint.

Names are those of the whole model, so that a run with another plan finds them: ``model.<name>``, ``optimizer.<name>.<key>``.
Tensors are sharded as their DTensors say. PowerSGD's error feedback is not saved: it belongs to the buckets of one layout, and
starts again at zero.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from strategist_runtime.compat.dtensor import local
from strategist_runtime.compat.persistent_buffers import persistent_buffers
from strategist_runtime.model.decoder import plain_name, plain_names
from strategist_runtime.parallel.streaming import Streaming
from strategist_runtime.training.trainer import Trainer

MODEL, OPTIMIZER = "model", "optimizer"
EMBEDDING, HEAD = "embedding.weight", "head.weight"


def finished_state_of(trainer: Trainer) -> dict[str, Tensor]:
    """The trainer's state (``state_of``), after optimizer updates in the background have finished."""
    if isinstance(trainer.pipeline, Streaming):
        trainer.pipeline.finish()
    return state_of(trainer)


def state_of(trainer: Trainer) -> dict[str, Tensor]:
    """This rank's shards of the state by name, not copied, without a last stage's copy of the tied embedding."""
    found = dict(_buffers(trainer))
    for plain, parameter in plain_names(trainer.parts):
        if not _is_copy(plain, trainer):
            found |= _states(plain, parameter, trainer)
    return found


def copies_of(trainer: Trainer) -> dict[str, Tensor]:
    """The state of a last stage's copy of the tied embedding, by the names of the embedding's state."""
    found: dict[str, Tensor] = {}
    for plain, parameter in plain_names(trainer.parts):
        if _is_copy(plain, trainer):
            found |= _states(EMBEDDING, parameter, trainer)
    return found


def _is_copy(plain: str, trainer: Trainer) -> bool:
    return plain == HEAD and trainer.pipeline is not None and trainer.plan.model.tied_embeddings


def _buffers(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    """Persistent buffers, which training changes (such as a router's bias), but no tables that any rank can recompute."""
    for part in trainer.parts:
        for path, module in part.named_modules():
            for name, buffer in persistent_buffers(module):
                yield f"{MODEL}.{plain_name(f'{path}.{name}')}", buffer


def _states(plain: str, parameter: Tensor, trainer: Trainer) -> dict[str, Tensor]:
    found = {f"{MODEL}.{plain}": parameter.detach()}
    for key, value in trainer.optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor):
            found[f"{OPTIMIZER}.{plain}.{key}"] = value
    return found


def make_states(trainer: Trainer, stored_metadata: dict[str, Any]) -> None:
    """Creates the optimizer's state tensors for the names in a checkpoint (``stored_metadata``), sharded like their parameters."""
    state: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)
    metadata_by_parameter: dict[str, dict[str, TensorStorageMetadata]] = {}
    for name, metadata in stored_metadata.items():
        if name.startswith(OPTIMIZER + "."):
            plain, _, key = name.removeprefix(OPTIMIZER + ".").rpartition(".")
            metadata_by_parameter.setdefault(plain, {})[key] = metadata
    fused = {parameter for group in trainer.optimizer.param_groups if group.get("fused") for parameter in group["params"]}
    for plain, parameter in plain_names(trainer.parts):
        for key, metadata in metadata_by_parameter.get(EMBEDDING if _is_copy(plain, trainer) else plain, {}).items():
            dtype = metadata.properties.dtype
            if metadata.size == parameter.shape:
                tensor = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
            else:  # the step count; fused kernels need it on the parameter's device
                tensor = torch.zeros(metadata.size, dtype=dtype, device=local(parameter).device if parameter in fused else "cpu")
            state[parameter][key] = tensor
    trainer.optimizer.__setstate__({"state": state, "param_groups": trainer.optimizer.param_groups})


def reload_copies(trainer: Trainer) -> None:
    """Updates everything that has copies of the loaded parameters: optimizers and streamed stages."""
    optimizer = trainer.optimizer
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})  # as at the end of load_state_dict
    if isinstance(trainer.pipeline, Streaming):
        trainer.pipeline.refresh()
