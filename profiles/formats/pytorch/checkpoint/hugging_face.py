import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from safetensors import safe_open
from safetensors.torch import save_file

HUGGING_FACE = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj", "attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm",
    # if: not moe
    "feed_forward.gate": "mlp.gate_proj", "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj",
    # end: not moe
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
        # if: lora
        if "lora_" in name:
            continue
        # end: lora
        window = window_of(parameter)
        pairs = [(local(parameter), window)]
        # if: moe
        if parameter.dim() == 3:
            pairs = [(matrix, window[1:]) for matrix in local(parameter)]
        # end: moe
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
            # if: lora
            for name in [name for name in whole if name.endswith("lora_a")]:
                module, a, b = name.removesuffix(".lora_a"), whole.pop(name), whole.pop(name.replace("lora_a", "lora_b"))
                whole[f"{module}.weight"] = whole[f"{module}.weight"].float() + LORA_ALPHA / LORA_RANK * (b @ a)
            # end: lora
            tensors = {}
            for name, values in whole.items() if writes else ():
                values = values.to("cpu", DTYPES[PRECISION])
                # if: moe
                if values.dim() == 3:
                    tensors |= {their_name(name).format(expert): matrix.clone() for expert, matrix in enumerate(values)}
                    continue
                # end: moe
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
    # if: fsdp
    if isinstance(parameter, DTensor):
        return parameter.full_tensor()
    # end: fsdp
    return parameter.data
