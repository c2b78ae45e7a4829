"""Export of a trained model as a Hugging Face folder: rank 0 receives whole tensors, one after the other, and writes them."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from strategist.contract.hugging_face import read_json
from strategist.contract.hugging_face_config import config_of
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError
from strategist_runtime.model.decoder import balance_biases, plain_name, plain_names
from strategist_runtime.model.lora import LoRALinear
from strategist_runtime.precision import compute_dtype
from strategist_runtime.weights.hugging_face import PARAMETER_NAMES
from strategist_runtime.weights.safetensors_writer import Shards
from strategist_runtime.weights.source import CONFIG

COPIED_FILES = ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json", "chat_template*")
"""Other files of a model's folder; they are copied from the folder of the initial weights and from the tokenizer's."""

TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


@dataclass(frozen=True, kw_only=True)
class ShardedParameter:
    """A tensor of the whole model of which this rank has a shard; all ranks with a shard must call ``whole`` at the same time."""

    name: str
    shape: tuple[int, ...]
    whole: Callable[[], Tensor]


def checked_config(plan: Plan, origin: str = "") -> dict[str, Any]:
    """The config.json that ``export`` writes: that of the folder ``origin`` if training started from one.

    Raises:
        InputError: Hugging Face has no architecture for this model, or its weights are stored in 4 bits only.
    """
    if plan.workload.train == "qlora":
        raise InputError(
            "--export-weights with train qlora", "the base is kept in 4 bits only", "train with lora, or save a checkpoint"
        )
    dtype = TYPES[compute_dtype(plan)]
    if not origin:
        return config_of(plan.model, plan.workload.seq_len, dtype)
    values = {name: value for name, value in read_json(Path(origin).expanduser() / CONFIG).items() if name != "torch_dtype"}
    return {**values, "dtype": dtype}


def export(
    parts: Sequence[nn.Module], plan: Plan, folder: str, device: torch.device, origin: str = "", tokenizer: str = ""
) -> None:
    """Writes the whole model in the compute type of the plan; every rank calls it. LoRA's updates are added to the base weights.
    ``origin`` is the folder of the initial weights, ``tokenizer`` that of another tokenizer, whose files are copied.

    Raises:
        FileError: the folder cannot be written.
    """
    config, dtype = checked_config(plan, origin), compute_dtype(plan)
    shapes, tensors = gathered(parts, plan, device)
    if dist.get_rank() == 0:
        shards = Shards(PARAMETER_NAMES[config["model_type"]], plan.model, shapes, dtype)
        _write(Path(folder).expanduser(), shards, tensors, config, [path for path in (origin, tokenizer) if path])
    else:
        for _ in tensors:
            pass
    dist.barrier()


def gathered(
    parts: Sequence[nn.Module], plan: Plan, device: torch.device
) -> tuple[dict[str, tuple[int, ...]], Iterator[tuple[str, Tensor]]]:
    """The shapes of the whole model's tensors by name; and on rank 0 the tensors, on the host, in the compute type of the plan.
    The iterator yields nothing on other ranks, but every rank must exhaust it.
    """
    parameters = list(_sharded_parameters(parts, plan))
    descriptions: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(descriptions, [(parameter.name, parameter.shape) for parameter in parameters])
    owners = {name: rank for rank, names in reversed(list(enumerate(descriptions))) for name, _ in names}
    shapes = {name: shape for names in descriptions for name, shape in names}
    return shapes, _send_to_rank_0(parameters, descriptions, owners, compute_dtype(plan), device)


def _sharded_parameters(parts: Sequence[nn.Module], plan: Plan) -> Iterator[ShardedParameter]:
    """This rank's parameters and saved buffers, each once: a tied head is left out."""
    with torch.no_grad():
        lora_modules = {f"{plain_name(name)}.weight": module for name, module in _modules(parts) if isinstance(module, LoRALinear)}
        for name, parameter in plain_names(parts):
            if name.endswith(("lora_a", "lora_b")) or (name == "head.weight" and plan.model.tied_embeddings):
                continue
            whole = partial(_merge_lora, lora_modules[name]) if name in lora_modules else partial(_full_tensor, parameter)
            yield ShardedParameter(name=name, shape=tuple(parameter.shape), whole=whole)
        for name, buffer in balance_biases(parts, plan.model):
            yield ShardedParameter(name=name, shape=tuple(buffer.shape), whole=partial(_full_tensor, buffer))


def _modules(parts: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    for part in parts:
        yield from part.named_modules()


def _full_tensor(tensor: Tensor) -> Tensor:
    value = tensor.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


def _merge_lora(linear: LoRALinear) -> Tensor:
    """W + scale B A (arXiv 2106.09685, section 4.1)."""
    weight, a, b = (_full_tensor(part) for part in (linear.weight, linear.lora_a, linear.lora_b))
    return weight.float() + linear.scale * (b.float() @ a.float())


def _send_to_rank_0(
    parameters: Sequence[ShardedParameter],
    descriptions: Sequence[Sequence[tuple[str, tuple[int, ...]]]],
    owners: dict[str, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Iterator[tuple[str, Tensor]]:
    """Yields every tensor of the model on rank 0, on the host. Other ranks send what rank 0 lacks and yield nothing.

    Ranks with shards of a tensor gather it in the same order. Rank 0 first gathers its own tensors, then receives those of one
    owner after the other.
    """
    rank = dist.get_rank()
    for parameter in parameters:
        whole = parameter.whole().to(dtype).contiguous()
        if owners[parameter.name] == rank == 0:
            yield parameter.name, whole.cpu()
        elif owners[parameter.name] == rank:
            dist.send(whole.to(device), dst=0)
    if rank == 0:
        for owner, names in enumerate(descriptions):
            for name, shape in names:
                if owner and owners[name] == owner:
                    buffer = torch.empty(shape, dtype=dtype, device=device)
                    dist.recv(buffer, src=owner)
                    yield name, buffer.cpu()


def _write(
    folder: Path, shards: Shards, tensors: Iterator[tuple[str, Tensor]], config: dict[str, Any], source_folders: list[str]
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in tensors:
            shards.add(name, values, folder)
        shards.finish(folder)
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        for path in (
            path for source in source_folders for pattern in COPIED_FILES for path in Path(source).expanduser().glob(pattern)
        ):
            shutil.copy(path, folder)
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error}") from None
