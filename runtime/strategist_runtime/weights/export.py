"""A trained model as a folder of Hugging Face's: whole tensors, one after the other, come to rank 0, which writes them."""

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
from strategist_runtime.weights.hugging_face import NAMES
from strategist_runtime.weights.shards import Shards
from strategist_runtime.weights.source import CONFIG

COMPANIONS = ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json", "chat_template*")
"""What else a folder of a model holds: copied from where the weights came from."""

TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


@dataclass(frozen=True, kw_only=True)
class ShardedParameter:
    """A tensor of the whole model that this rank holds a part of; its other holders call ``whole`` at the same time."""

    name: str
    shape: tuple[int, ...]
    whole: Callable[[], Tensor]


def checked_config(plan: Plan, origin: str = "") -> dict[str, Any]:
    """The configuration that ``export`` will write: that of the folder ``origin`` if training began with one.

    Raises:
        InputError: no architecture of Hugging Face's computes this model, or its weights are kept in 4 bits only.
    """
    if plan.workload.train == "qlora":
        raise InputError(
            "--export-weights with train qlora", "the base is kept in 4 bits only", "train with lora, or save a checkpoint"
        )
    dtype = TYPES[compute_dtype(plan)]
    if not origin:
        return config_of(plan.model, plan.workload.seq_len, dtype)
    said = {name: value for name, value in read_json(Path(origin).expanduser() / CONFIG).items() if name != "torch_dtype"}
    return {**said, "dtype": dtype}


def export(
    parts: Sequence[nn.Module], plan: Plan, folder: str, device: torch.device, origin: str = "", tokenizer: str = ""
) -> None:
    """Writes the whole model, in the type in which the plan computes; every rank calls it. What LoRA learned is added to its base.
    ``origin`` is the folder that training began with, ``tokenizer`` that of another tokenizer, which comes along.

    Raises:
        FileError: the folder cannot be written.
    """
    config, dtype = checked_config(plan, origin), compute_dtype(plan)
    shapes, arriving = gathered(parts, plan, device)
    if dist.get_rank() == 0:
        shards = Shards(NAMES[config["model_type"]], plan.model, shapes, dtype)
        _write(Path(folder).expanduser(), shards, arriving, config, [place for place in (origin, tokenizer) if place])
    else:
        for _ in arriving:
            pass
    dist.barrier()


def gathered(
    parts: Sequence[nn.Module], plan: Plan, device: torch.device
) -> tuple[dict[str, tuple[int, ...]], Iterator[tuple[str, Tensor]]]:
    """The shapes of the whole model's tensors by name, and on rank 0 the tensors, in the type in which the plan computes, on the
    host; elsewhere nothing comes, but every rank must walk through it."""
    own = list(_held(parts, plan))
    told: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(told, [(item.name, item.shape) for item in own])
    owners = {name: rank for rank, names in reversed(list(enumerate(told))) for name, _ in names}
    shapes = {name: shape for names in told for name, shape in names}
    return shapes, _arriving(own, told, owners, compute_dtype(plan), device)


def _held(parts: Sequence[nn.Module], plan: Plan) -> Iterator[ShardedParameter]:
    """Parameters and saved buffers, each once: a head that is the embedding has no name of its own."""
    with torch.no_grad():
        adapted = {f"{plain_name(name)}.weight": module for name, module in _modules(parts) if isinstance(module, LoRALinear)}
        for name, parameter in plain_names(parts):
            if name.endswith(("lora_a", "lora_b")) or (name == "head.weight" and plan.model.tied_embeddings):
                continue
            whole = partial(_merged, adapted[name]) if name in adapted else partial(_whole, parameter)
            yield ShardedParameter(name=name, shape=tuple(parameter.shape), whole=whole)
        for name, buffer in balance_biases(parts, plan.model):
            yield ShardedParameter(name=name, shape=tuple(buffer.shape), whole=partial(_whole, buffer))


def _modules(parts: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    for part in parts:
        yield from part.named_modules()


def _whole(tensor: Tensor) -> Tensor:
    value = tensor.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


def _merged(linear: LoRALinear) -> Tensor:
    """W + scale B A (arXiv 2106.09685, section 4.1)."""
    weight, a, b = (_whole(part) for part in (linear.weight, linear.lora_a, linear.lora_b))
    return weight.float() + linear.scale * (b.float() @ a.float())


def _arriving(
    own: Sequence[ShardedParameter],
    told: Sequence[Sequence[tuple[str, tuple[int, ...]]]],
    owners: dict[str, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Iterator[tuple[str, Tensor]]:
    """On rank 0 every tensor of the model, on the host; elsewhere nothing, but sent what rank 0 lacks.

    Holders of a tensor gather it in the same order; rank 0 first gathers its own, then takes those of one owner after the other.
    """
    rank = dist.get_rank()
    for item in own:
        whole = item.whole().to(dtype).contiguous()
        if owners[item.name] == rank == 0:
            yield item.name, whole.cpu()
        elif owners[item.name] == rank:
            dist.send(whole.to(device), dst=0)
    if rank == 0:
        for owner, names in enumerate(told):
            for name, shape in names:
                if owner and owners[name] == owner:
                    buffer = torch.empty(shape, dtype=dtype, device=device)
                    dist.recv(buffer, src=owner)
                    yield name, buffer.cpu()


def _write(
    folder: Path, shards: Shards, arriving: Iterator[tuple[str, Tensor]], config: dict[str, Any], origins: list[str]
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in arriving:
            shards.add(name, values, folder)
        shards.finish(folder)
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        for path in (path for place in origins for pattern in COMPANIONS for path in Path(place).expanduser().glob(pattern)):
            shutil.copy(path, folder)
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error}") from None
