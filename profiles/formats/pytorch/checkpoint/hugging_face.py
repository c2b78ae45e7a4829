import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

# if: moe and fsdp


def experts_of(parameter):
    """This rank's matrices of stacked experts, with their numbers."""
    _, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    # if: expert_mesh
    mesh, sizes = parameter.device_mesh["experts"], {"shape": parameter.shape[1:], "stride": parameter.stride()[1:]}
    shard = [DTensor.from_local(matrix, mesh, [Shard(0)], run_check=False, **sizes) for matrix in parameter.to_local()]
    return enumerate(shard, offsets[0])
    # end: expert_mesh
    # if: not expert_mesh
    return enumerate(parameter.to_local(), offsets[0])
    # end: not expert_mesh


# end: moe and fsdp
def hugging_face_state(parameters):
    """Parameters by their names in Hugging Face's files."""
    # if: moe
    state = {}
    for name, parameter in parameters.items():
        hugging_face_name = ".".join(HUGGING_FACE.get(word, word) for word in name.split("."))
        if parameter.dim() < 3:
            state[hugging_face_name] = parameter.detach()
        else:
            # if: fsdp
            state |= {f"{hugging_face_name}.weight".format(number): matrix for number, matrix in experts_of(parameter.detach())}
            # end: fsdp
            # if: not fsdp
            state |= {f"{hugging_face_name}.weight".format(number): matrix for number, matrix in enumerate(parameter.detach())}
            # end: not fsdp
    return state
    # end: moe
    # if: lora and not moe
    names = {name: ".".join(HUGGING_FACE.get(word, word) for word in name.split(".")) for name in parameters}
    return {names[name]: parameter.detach() for name, parameter in parameters.items() if "lora_" not in name}
    # end: lora and not moe
    # if: not lora and not moe
    return {".".join(HUGGING_FACE.get(word, word) for word in name.split(".")): part.detach() for name, part in parameters.items()}
    # end: not lora and not moe


@torch.no_grad()
def export_weights(folder, parameters, initial_folder):
    # if: lora
    """Writes a folder of Hugging Face's in the compute type, with LoRA's products added to its matrices."""
    parameters = {**parameters}
    for name, b in [item for item in parameters.items() if item[0].endswith("lora_b")]:
        a, base = parameters[name.replace("lora_b", "lora_a")], name.replace("lora_b", "weight")
        parameters[base] = parameters[base].float() + LORA_ALPHA / LORA_RANK * (b @ a)
    # end: lora
    # if: not lora
    """Writes a folder of Hugging Face's in the compute type, with the tokenizer of the initial one."""
    # end: not lora
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
