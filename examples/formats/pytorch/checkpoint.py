"""First weights, weights of Hugging Face, and checkpoints from which any plan of the same model can resume."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from model import DTYPES
from plan import LAYERS, PRECISION, SEED

HUGGING_FACE = {  # each word of a parameter's name, as it is called there
    "embedding": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention": "self_attn", "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    "feed_forward": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
}  # fmt: skip


@torch.no_grad()
def draw_weights(parameters):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in parameters.items():
        sizes, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
        piece, window = parameter.to_local(), [slice(first, first + size) for first, size in zip(offsets, sizes, strict=True)]
        deviation = 0.02 * (2 * LAYERS) ** -0.5 if name.endswith(("output.weight", "down.weight")) else 0.02  # as in GPT-2
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        else:
            draw(piece, window, parameter.shape[1], deviation, f"{SEED}/{name}")


def draw(piece, window, columns, deviation, name):
    """Fills a window of a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, place = max(1, 2**18 // columns), window[0]
    for block in range(place.start // rows, -(-place.stop // rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(piece.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        values = torch.empty(rows, columns, device=piece.device).normal_(std=deviation, generator=generator)
        first, last = max(place.start, block * rows), min(place.stop, (block + 1) * rows)
        piece[first - place.start : last - place.start] = values[first - block * rows : last - block * rows, window[1]]


def hugging_face_state(parameters):
    """Parameters by their names in Hugging Face's files."""
    theirs = {name: ".".join(HUGGING_FACE.get(word, word) for word in name.split(".")) for name in parameters}
    return {theirs[name]: parameter.detach() for name, parameter in parameters.items()}


@torch.no_grad()
def export_weights(folder, parameters, begun_with):
    """Writes a folder of Hugging Face's in the type of computing, with the tokenizer of the one that the training began with."""
    state = {name: values.to(DTYPES[PRECISION]) for name, values in hugging_face_state(parameters).items()}
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True))
    if dist.get_rank() == 0:
        shutil.rmtree(Path(folder, "sharded"))
        source = Path(begun_with or Path(__file__).parent)
        config = {**json.loads((source / "config.json").read_text()), "dtype": str(DTYPES[PRECISION]).removeprefix("torch.")}
        Path(folder, "config.json").write_text(json.dumps(config, indent=2))
        for pattern in ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json"):
            for path in source.glob(pattern):
                shutil.copy(path, folder)


def state_of(parameters, optimizer, counts):
    """Everything that a checkpoint holds, by names that no layout changes: any plan of this model can resume from it."""
    state = {f"model.{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    return {"training.counts": counts, **state}


def save(folder, keep, state):
    """Writes a checkpoint into a folder of its own, which gets its name when it is whole; the newest ``keep`` stay."""
    final = folder / f"step-{int(state['training.counts'][0]):08}"
    dcp.save(state, checkpoint_id=f"{final}.partial")
    if dist.get_rank() == 0:
        Path(f"{final}.partial").rename(final)
        for old in sorted(folder.glob("step-????????"))[:-keep]:
            shutil.rmtree(old)
