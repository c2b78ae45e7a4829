import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.tensor import DTensor, Shard

HUGGING_FACE = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj",
    # if: qk_norm
    "attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm",
    # end: qk_norm
    # if: not moe
    "attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj", "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj",
    # end: not moe
    # if: moe
    "attention.output": "self_attn.o_proj",
    # end: moe
    # if: moe and not mixtral
    "feed_forward.router": "mlp.gate", "feed_forward.experts.gate": "mlp.experts.{}.gate_proj",
    "feed_forward.experts.up": "mlp.experts.{}.up_proj", "feed_forward.experts.down": "mlp.experts.{}.down_proj",
    # end: moe and not mixtral
    # if: mixtral
    "feed_forward.router": "block_sparse_moe.gate", "feed_forward.experts.gate": "block_sparse_moe.experts.{}.w1",
    "feed_forward.experts.up": "block_sparse_moe.experts.{}.w3", "feed_forward.experts.down": "block_sparse_moe.experts.{}.w2",
    # end: mixtral
}  # fmt: skip


def their_name(name):
    # if: moe
    """The name of a parameter in Hugging Face's files; that of stacked experts has a place for the number of the expert."""
    # end: moe
    # if: not moe
    """The name of a parameter in Hugging Face's files."""
    # end: not moe
    layer, inside = "", name.removesuffix(".weight").removesuffix(".bias")
    if inside.startswith("layers."):
        _, number, inside = inside.split(".", 2)
        layer = f"model.layers.{number}."
    return f"{layer}{HUGGING_FACE[inside]}.{'bias' if name.endswith('.bias') else 'weight'}"


# if: moe and fsdp
def experts_of(parameter):
    """The matrices of a stack of experts that this rank holds, by number."""
    piece, window = piece_of(parameter)
    # if: apart
    mesh, whole = parameter.device_mesh["experts"], {"shape": parameter.shape[1:], "stride": parameter.stride()[1:]}
    piece = [DTensor.from_local(matrix, mesh, [Shard(0)], run_check=False, **whole) for matrix in piece]
    # end: apart
    return enumerate(piece, window[0].start)


# end: moe and fsdp
def hugging_face_state(parts):
    """Parameters by their names in Hugging Face's files."""
    # if: moe
    state = {}
    for name, parameter in named(parts):
        if parameter.dim() < 3:
            state[their_name(name)] = parameter.detach()
        else:
            # if: fsdp
            state |= {their_name(name).format(number): matrix for number, matrix in experts_of(parameter.detach())}
            # end: fsdp
            # if: not fsdp
            state |= {their_name(name).format(number): matrix for number, matrix in enumerate(parameter.detach())}
            # end: not fsdp
    return state
    # end: moe
    # if: lora and not moe
    return {their_name(name): parameter.detach() for name, parameter in named(parts) if "lora_" not in name}
    # end: lora and not moe
    # if: not lora and not moe
    return {their_name(name): parameter.detach() for name, parameter in named(parts)}
    # end: not lora and not moe


def load_weights(folder, parts):
    # if: lora
    """Reads from a folder of Hugging Face's what this rank holds; matrices of LoRA stay as they are."""
    # end: lora
    # if: not lora
    """Reads from a folder of Hugging Face's what this rank holds."""
    # end: not lora
    dcp.load(hugging_face_state(parts), storage_reader=HuggingFaceStorageReader(folder))


@torch.no_grad()
def export_weights(folder, parts, begun_with):
    # if: lora
    """Writes a folder of Hugging Face's in the type of computing, with what LoRA has learned added to its matrices."""
    # end: lora
    # if: not lora
    """Writes a folder of Hugging Face's in the type of computing, with the tokenizer of the one that the training began with."""
    # end: not lora
    # if: lora
    state = hugging_face_state(parts)
    adapters = {name: parameter for name, parameter in named(parts) if "lora_" in name}
    for name, b in adapters.items():
        if name.endswith("lora_b"):
            a, theirs = adapters[name.replace("lora_b", "lora_a")], their_name(name.replace("lora_b", "weight"))
            state[theirs] = state[theirs].float() + LORA_ALPHA / LORA_RANK * (b @ a)
    state = {name: values.to(DTYPES[PRECISION]) for name, values in state.items()}
    # end: lora
    # if: not lora
    state = {name: values.to(DTYPES[PRECISION]) for name, values in hugging_face_state(parts).items()}
    # end: not lora
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True))
    if dist.get_rank() == 0:
        shutil.rmtree(Path(folder, "sharded"))
        source = Path(begun_with or Path(__file__).parent)
        config = {**json.loads((source / "config.json").read_text()), "dtype": str(DTYPES[PRECISION]).removeprefix("torch.")}
        Path(folder, "config.json").write_text(json.dumps(config, indent=2))
        for pattern in ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "generation_config.json"):
            for path in source.glob(pattern):
                shutil.copy(path, folder)
