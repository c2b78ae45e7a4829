"""First weights, weights of Hugging Face, and checkpoints from which any plan of the same model can resume."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from model import DTYPES
from plan import LAYERS, PRECISION, SEED


def named(parts):
    """The parameters of this rank with their names in the whole model."""
    return [item for part in parts for item in part.named_parameters()]


def piece_of(parameter):
    """What this rank holds of a parameter, and where it lies in the whole, as slices."""
    sizes, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return parameter.to_local(), [slice(first, first + size) for first, size in zip(offsets, sizes, strict=True)]


@torch.no_grad()
def draw_weights(parts):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in named(parts):
        piece, window = piece_of(parameter)
        columns, deviation = parameter.shape[-1], 0.02
        if name.endswith(("attention.output.weight", "feed_forward.down.weight")):
            deviation *= (2 * LAYERS) ** -0.5  # what is added to the residual stream, as in GPT-2
        if parameter.dim() == 1:
            piece.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        else:
            draw(piece, window, columns, deviation, f"{SEED}/{name}")


def draw(piece, window, columns, deviation, name):
    """Fills a window of a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, place = max(1, 2**18 // columns), window[0]
    for block in range(place.start // rows, -(-place.stop // rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(piece.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        values = torch.empty(rows, columns, device=piece.device).normal_(std=deviation, generator=generator)
        first, last = max(place.start, block * rows), min(place.stop, (block + 1) * rows)
        piece[first - place.start : last - place.start] = values[first - block * rows : last - block * rows, window[1]]


HUGGING_FACE = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj", "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj",
}  # fmt: skip


def their_name(name):
    """The name of a parameter in Hugging Face's files."""
    layer, inside = "", name.removesuffix(".weight").removesuffix(".bias")
    if inside.startswith("layers."):
        _, number, inside = inside.split(".", 2)
        layer = f"model.layers.{number}."
    return f"{layer}{HUGGING_FACE[inside]}.{'bias' if name.endswith('.bias') else 'weight'}"


def hugging_face_state(parts):
    """Parameters by their names in Hugging Face's files."""
    return {their_name(name): parameter.detach() for name, parameter in named(parts)}


def load_weights(folder, parts):
    """Reads from a folder of Hugging Face's what this rank holds."""
    dcp.load(hugging_face_state(parts), storage_reader=HuggingFaceStorageReader(folder))


@torch.no_grad()
def export_weights(folder, parts, begun_with):
    """Writes a folder of Hugging Face's in the type of computing, with the tokenizer of the one that the training began with."""
    state = {name: values.to(DTYPES[PRECISION]) for name, values in hugging_face_state(parts).items()}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True))
    if dist.get_rank() == 0:
        shutil.rmtree(Path(folder, "sharded"))
        source = Path(begun_with or Path(__file__).parent)
        config = {**json.loads((source / "config.json").read_text()), "dtype": str(DTYPES[PRECISION]).removeprefix("torch.")}
        Path(folder, "config.json").write_text(json.dumps(config, indent=2))
        for pattern in ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json"):
            for path in source.glob(pattern):
                shutil.copy(path, folder)


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
    """The newest checkpoint in a folder; None without any."""
    return max(Path(folder).glob("step-????????"), default=None) if folder else None
