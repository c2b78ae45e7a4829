"""First weights, weights of Hugging Face, and checkpoints from which any plan of the same model can resume."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import distribute_tensor

from plan import LAYERS, PRECISION, SEED

HUGGING_FACE = {  # words of parameter names, and Hugging Face's
    "embedding": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention": "self_attn", "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    "feed_forward": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
}  # fmt: skip


@torch.no_grad()
def draw_weights(parameters):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in parameters.items():
        full = torch.ones(parameter.shape, device=parameter.device)
        deviation = 0.02 * (2 * LAYERS) ** -0.5 if name.endswith(("output.weight", "down.weight")) else 0.02  # as in GPT-2
        if full.dim() > 1:
            shape = (max(1, 2**18 // full.shape[1]), full.shape[1])  # rows that one seed draws, and columns
            for block, rows in enumerate(full.split(shape[0])):
                digest = hashlib.blake2b(f"{SEED}/{name}/{block}".encode(), digest_size=8).digest()
                generator = torch.Generator(rows.device).manual_seed(int.from_bytes(digest, "big") >> 1)
                rows.copy_(torch.normal(0.0, deviation, shape, generator=generator, device=rows.device)[: len(rows)])
        parameter.copy_(distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None))


def hugging_face_state(parameters):
    """Parameters by their names in Hugging Face's files."""
    return {".".join(HUGGING_FACE.get(word, word) for word in name.split(".")): part.detach() for name, part in parameters.items()}


@torch.no_grad()
def export_weights(folder, parameters, initial_folder):
    """Writes a folder of Hugging Face's in the compute type, with the tokenizer of the initial one."""
    state = {name: values.to(getattr(torch, PRECISION)) for name, values in hugging_face_state(parameters).items()}
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True))
    if dist.get_rank() == 0:
        shutil.rmtree(Path(folder, "sharded"))
        source = Path(initial_folder or Path(__file__).parent)
        config = {**json.loads((source / "config.json").read_text()), "dtype": PRECISION}
        Path(folder, "config.json").write_text(json.dumps(config, indent=2))
        for pattern in ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json"):
            for path in source.glob(pattern):
                shutil.copy(path, folder)


def state_of(parameters, optimizer, counts):
    """The contents of a checkpoint, by names that do not depend on the layout: any plan of this model can resume from it."""
    state = {f"model.{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    return {"training.counts": counts, **state}


def save(folder, keep, state):
    """Writes a checkpoint, which is whole once torch has written its .metadata; the newest ``keep`` stay."""
    dcp.save(state, checkpoint_id=folder / f"step-{int(state['training.counts'][0]):08}")
    if dist.get_rank() == 0:
        for old in sorted(folder.glob("step-*/.metadata"))[:-keep]:
            shutil.rmtree(old.parent)
