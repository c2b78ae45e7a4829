"""First weights, weights of Hugging Face, and checkpoints from which any plan of the same model can resume."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from model import DTYPES
from plan import CP, DP_REPLICATE, DP_SHARD, LAYERS, PRECISION, SEED, TP


def named(parts):
    """The parameters of this rank with their names in the whole model."""
    for part in parts:
        yield from getattr(part, "module", part).named_parameters()  # DDP has its model in ``module``


def local(tensor):
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def window_of(parameter):
    """Where the part of a parameter that this rank holds lies in the whole, as slices."""
    sizes, offsets = parameter.shape, [0] * parameter.dim()
    if isinstance(parameter, DTensor):
        sizes, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return [slice(first, first + size) for first, size in zip(offsets, sizes, strict=True)]


@torch.no_grad()
def draw_weights(parts):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in named(parts):
        part, window = local(parameter), window_of(parameter)
        columns, deviation = parameter.shape[-1], 0.02
        if name.endswith(("attention.output.weight", "feed_forward.down.weight", "experts.down", "shared.down.weight")):
            deviation *= (2 * LAYERS) ** -0.5  # what is added to the residual stream, as in GPT-2
        if parameter.dim() == 1:
            part.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        else:
            draw(part, window, columns, deviation, f"{SEED}/{name}")


def draw(part, window, columns, deviation, name):
    """Fills a window of a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, place = max(1, 2**18 // columns), window[0]
    for block in range(place.start // rows, -(-place.stop // rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(part.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        values = torch.empty(rows, columns, device=part.device).normal_(std=deviation, generator=generator)
        first, last = max(place.start, block * rows), min(place.stop, (block + 1) * rows)
        part[first - place.start : last - place.start] = values[first - block * rows : last - block * rows, window[1]]


HUGGING_FACE = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj", "attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm",
    "feed_forward.gate": "mlp.gate_proj", "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj",
}  # fmt: skip


def their_name(name):
    """The name of a parameter in Hugging Face's files; that of stacked experts has a place for the number of the expert."""
    layer, inside = "", name.removesuffix(".weight").removesuffix(".bias")
    if inside.startswith("layers."):
        _, number, inside = inside.split(".", 2)
        layer = f"model.layers.{number}."
    return f"{layer}{HUGGING_FACE[inside]}.{'bias' if name.endswith('.bias') else 'weight'}"


@torch.no_grad()
def load_weights(folder, parts):
    """Reads from a folder of Hugging Face's what this rank holds; matrices of LoRA stay as they are."""
    files = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        file = safe_open(path, framework="pt")
        files |= dict.fromkeys(file.keys(), file)
    for name, parameter in named(parts):
        window = window_of(parameter)
        pairs = [(local(parameter), window)]
        for expert, (target, cut) in enumerate(pairs, window[0].start):
            theirs = their_name(name).format(expert)
            if theirs not in files:
                raise SystemExit(f"{folder} holds no {theirs}")
            if target.numel():
                target.copy_(files[theirs].get_slice(theirs)[tuple(cut)])


@torch.no_grad()
def export_weights(folder, parts, begun_with=None):
    """Writes a folder of Hugging Face's, a file for each layer and one for what is no layer's; every rank calls it.

    Values are in the type that the training computes in; what LoRA has learned is added to its matrices."""
    folder, files = Path(folder), {}
    folder.mkdir(parents=True, exist_ok=True)
    writes = dist.get_rank() % (DP_REPLICATE * DP_SHARD * CP * TP) == 0  # the first rank of each pipeline stage
    for part in parts:
        by_file = {}
        for name, parameter in named([part]):
            file = f"model-layer-{name.split('.')[1]}" if name.startswith("layers.") else f"model-{name.split('.')[0]}"
            by_file.setdefault(f"{file}.safetensors", []).append((name, parameter))
        for file, members in by_file.items():
            whole = {name: gathered(parameter) for name, parameter in members}
            tensors = {}
            for name, values in whole.items() if writes else ():
                values = values.to("cpu", DTYPES[PRECISION])
                tensors[their_name(name)] = values.contiguous()
            if tensors:
                save_file(tensors, folder / file, metadata={"format": "pt"})
                files |= dict.fromkeys(tensors, file)
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, files)
    if dist.get_rank() == 0:
        index = {"metadata": {}, "weight_map": {name: file for each in everywhere for name, file in each.items()}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
        config = json.loads((Path(begun_with or Path(__file__).parent) / "config.json").read_text())
        config = {key: value for key, value in config.items() if key != "torch_dtype"}
        config["dtype"] = str(DTYPES[PRECISION]).removeprefix("torch.")
        (folder / "config.json").write_text(json.dumps(config, indent=2))
        for pattern in ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json"):
            for path in Path(begun_with).glob(pattern) if begun_with else ():
                shutil.copy(path, folder)
    dist.barrier()


def gathered(parameter):
    if isinstance(parameter, DTensor):
        return parameter.full_tensor()
    return parameter.data


def state_of(parts, optimizer, counts):
    """Everything that a checkpoint holds, by names that no layout changes: any plan of this model can resume from it."""
    state = {"training.counts": counts}
    for name, parameter in named(parts):
        state[f"model.{name}"] = parameter.detach()
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    return state


def save(folder, keep, parts, optimizer, counts):
    """Writes a checkpoint into a folder of its own, which gets its name when it is whole; the newest ``keep`` stay."""
    final = Path(folder, f"step-{int(counts[0]):08}")
    partial = final.with_suffix(".partial")
    dcp.save(state_of(parts, optimizer, counts), checkpoint_id=partial)
    if dist.get_rank() == 0:
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        for old in sorted(Path(folder).glob("step-????????"))[:-keep]:
            shutil.rmtree(old)
    dist.barrier()


def newest(folder):
    """The newest checkpoint in a folder, or the folder itself if it is one; None without any."""
    if folder and Path(folder, ".metadata").exists():
        return Path(folder)
    return max(Path(folder).glob("step-????????"), default=None) if folder else None


def resume(path, parts, optimizer, counts):
    """Brings back what was saved, under this plan or another one; ``counts`` then holds those of the checkpoint."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:  # an empty step makes the optimizer's states
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    state = state_of(parts, optimizer, counts)
    dcp.load(state, checkpoint_id=path)
