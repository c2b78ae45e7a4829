import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.utils.checkpoint import checkpoint


# if: pp
def build(first, last, meshes, device):
    """Layers ``first`` to ``last - 1`` as this rank trains them, without values."""
    with torch.device("meta"):
        part = Decoder(first, last)
# end: pp
# if: meshes and not pp
def build(meshes, device):
    """The model as this rank trains it, without values."""
    with torch.device("meta"):
        part = Decoder()
# end: meshes and not pp
# if: not meshes
def build(device):
    """The model without values."""
    with torch.device("meta"):
        part = Decoder()
# end: not meshes
    # if: tp
    apply_tensor_parallel(part, meshes["tp"])
    # end: tp
    # if: dealt
    apply_expert_parallel(part, meshes)
    # end: dealt
    # if: cp
    apply_context_parallel(part, meshes["cp"], device)
    # end: cp
    # if: lora
    apply_lora(part)
    # end: lora
    # if: recompute
    # if: selective
    again = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": selective}
    # end: selective
    # if: not selective
    again = {"use_reentrant": False, "preserve_rng_state": False}
    # end: not selective
    # if: every_second_layer
    for layer in [layer for index, layer in part.layers.items() if int(index) % 2 == 0]:
    # end: every_second_layer
    # if: not every_second_layer
    for layer in part.layers.values():
    # end: not every_second_layer
        layer.forward = lambda x, forward=layer.forward: checkpoint(forward, x, **again)  # again in backward (arXiv 1604.06174)
    # end: recompute
    # if: compiles_first
    for layer in part.layers.values():
        # if: not moe
        layer.compile(fullgraph=FULLGRAPH)
        # end: not moe
        # if: moe
        layer.attention.compile(fullgraph=FULLGRAPH)  # the number of rows of an expert is not known to a graph
        # end: moe
    # end: compiles_first
    # if: fsdp
    # if: hsdp
    how = {"mesh": meshes["dp_replicate", "dp_shard"], "mp_policy": MixedPrecisionPolicy(DTYPES[PRECISION], DTYPES[REDUCE_DTYPE])}
    # end: hsdp
    # if: not hsdp
    how = {"mesh": meshes["dp_shard"], "mp_policy": MixedPrecisionPolicy(DTYPES[PRECISION], DTYPES[REDUCE_DTYPE])}
    # end: not hsdp
    # if: offload and cuda
    how["offload_policy"] = CPUOffloadPolicy(pin_memory=PIN_MEMORY)
    # end: offload and cuda
    # if: offload and not cuda
    how["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    # end: offload and not cuda
    # if: apart
    own = {**how, "mesh": meshes["experts"], "shard_placement_fn": lambda parameter: Shard(1)}  # a part of each expert
    for mixture in mixtures(part):
        fully_shard(mixture.experts, **own, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: apart
    # if: not units
    for layer in part.layers.values():
        # if: compile and not moe
        layer.compile(fullgraph=FULLGRAPH)
        # end: compile and not moe
        # if: compile and moe
        layer.attention.compile(fullgraph=FULLGRAPH)  # the number of rows of an expert is not known to a graph
        # end: compile and moe
        fully_shard(layer, **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: not units
    # if: units
    layers = list(part.layers.values())
    for first in range(0, len(layers), LAYERS_PER_UNIT):
        fully_shard(layers[first : first + LAYERS_PER_UNIT], **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: units
    fully_shard(part, **how, reshard_after_forward=RESHARD_ROOT)  # embedding, last norm and head (FSDP2, arXiv 2304.11277)
    # end: fsdp
    # if: not fsdp and not lora and not fp32
    part.forward = torch.autocast(device.type, dtype=DTYPES[PRECISION])(part.forward)
    # end: not fsdp and not lora and not fp32
    # if: offload
    device = "cpu"  # from which FSDP2 takes each layer as it is used
    # end: offload
    # if: fills
    part.to_empty(device=device)
    # end: fills
    # if: tied
    part.head.weight = part.embedding.weight
    # end: tied
    # if: balance_bias
    for mixture in mixtures(part):
        mixture.balance_bias.zero_()
    # end: balance_bias
    # if: fills
    return part
    # end: fills
    # if: not fills
    return part.to_empty(device=device)
    # end: not fills
