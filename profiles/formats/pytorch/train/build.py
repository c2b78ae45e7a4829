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
    # if: ep
    apply_expert_parallel(part, expert_mesh(device)["ep"])
    # end: ep
    # if: shared_sequences
    # if: lists_mixtures
    for mixture in mixtures(part):
    # end: lists_mixtures
    # if: not lists_mixtures
    for mixture in [layer.feed_forward for layer in part.layers.values()]:
    # end: not lists_mixtures
        mixture.sequence_groups = [meshes[name].get_group() for name in ("cp", "tp") if name in MESH]
    # end: shared_sequences
    # if: lora and moe
    apply_lora(part)
    # end: lora and moe
    # if: lora and not moe
    part.requires_grad_(False).to(getattr(torch, PRECISION))
    for name, module in list(part.layers.named_modules()):
        if isinstance(module, torch.nn.Linear):
            part.layers.set_submodule(name, LoRALinear(module))
    # end: lora and not moe
    # if: qlora
    LoRALinear.levels = torch.tensor(LEVELS, device=device)
    # end: qlora
    # if: recompute
    # if: selective
    checkpoint_options = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": selective}
    # end: selective
    # if: not selective
    checkpoint_options = {"use_reentrant": False, "preserve_rng_state": False}
    # end: not selective
    # end: recompute
    # if: every_second_layer
    for layer in [layer for index, layer in part.layers.items() if int(index) % 2 == 0]:
        layer.forward = lambda x, forward=layer.forward: checkpoint(forward, x, **checkpoint_options)  # arXiv 1604.06174
    # end: every_second_layer
    # if: prepares_first
    for layer in part.layers.values():
    # end: prepares_first
        # if: recompute and not every_second_layer and not sharded
        layer.forward = lambda x, forward=layer.forward: checkpoint(forward, x, **checkpoint_options)  # arXiv 1604.06174
        # end: recompute and not every_second_layer and not sharded
        # if: compiles_first
        # if: not moe
        layer.compile(fullgraph=FULLGRAPH)
        # end: not moe
        # if: moe
        layer.attention.compile(fullgraph=FULLGRAPH)  # the number of rows of an expert is not known to a graph
        # end: moe
        # end: compiles_first
    # if: fsdp
    # if: hsdp
    policy = MixedPrecisionPolicy(getattr(torch, PRECISION), getattr(torch, REDUCE_DTYPE))
    # end: hsdp
    # if: hsdp and not cp
    fsdp = {"mesh": meshes["dp_replicate", "dp_shard"], "mp_policy": policy}
    # end: hsdp and not cp
    # if: hsdp and cp
    fsdp = {"mesh": meshes["dp_replicate", "shards"], "mp_policy": policy}
    # end: hsdp and cp
    # if: cp and not hsdp
    fsdp = {"mesh": meshes["shards"], "mp_policy": MixedPrecisionPolicy(getattr(torch, PRECISION), getattr(torch, REDUCE_DTYPE))}
    # end: cp and not hsdp
    # if: not hsdp and not cp
    fsdp = {"mesh": meshes["dp_shard"], "mp_policy": MixedPrecisionPolicy(getattr(torch, PRECISION), getattr(torch, REDUCE_DTYPE))}
    # end: not hsdp and not cp
    # if: offload and cuda
    fsdp["offload_policy"] = CPUOffloadPolicy(pin_memory=PIN_MEMORY)
    # end: offload and cuda
    # if: offload and not cuda
    fsdp["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    # end: offload and not cuda
    # if: expert_mesh
    # if: hsdp
    expert_fsdp = {**fsdp, "mesh": expert_mesh(device)["dp_replicate", "experts"], "shard_placement_fn": lambda parameter: Shard(1)}
    # end: hsdp
    # if: not hsdp
    expert_fsdp = {**fsdp, "mesh": expert_mesh(device)["experts"], "shard_placement_fn": lambda parameter: Shard(1)}
    # end: not hsdp
    # end: expert_mesh
    # if: expert_mesh and lists_mixtures
    for mixture in mixtures(part):  # each rank holds a part of each of its experts
        fully_shard(mixture.experts, **expert_fsdp, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: expert_mesh and lists_mixtures
    # if: not units
    for layer in part.layers.values():
        # if: recompute and not every_second_layer
        layer.forward = lambda x, forward=layer.forward: checkpoint(forward, x, **checkpoint_options)  # arXiv 1604.06174
        # end: recompute and not every_second_layer
        # if: compile and not moe
        layer.compile(fullgraph=FULLGRAPH)
        # end: compile and not moe
        # if: compile and moe
        layer.attention.compile(fullgraph=FULLGRAPH)  # the number of rows of an expert is not known to a graph
        # end: compile and moe
        # if: expert_mesh and not lists_mixtures
        fully_shard(layer.feed_forward.experts, **expert_fsdp, reshard_after_forward=RESHARD_AFTER_FORWARD)  # a part of each expert
        # end: expert_mesh and not lists_mixtures
        fully_shard(layer, **fsdp, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: not units
    # if: units
    layers = list(part.layers.values())
    for first in range(0, len(layers), LAYERS_PER_UNIT):
        fully_shard(layers[first : first + LAYERS_PER_UNIT], **fsdp, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: units
    fully_shard(part, **fsdp, reshard_after_forward=RESHARD_ROOT)  # embedding, last norm and head (FSDP2, arXiv 2304.11277)
    # end: fsdp
    # if: not fsdp and not lora and not fp32
    part.forward = torch.autocast(device.type, dtype=getattr(torch, PRECISION))(part.forward)
    # end: not fsdp and not lora and not fp32
    # if: offload
    device = "cpu"  # FSDP2 copies each layer to the device when it is used
    # end: offload
    # if: fills
    part.to_empty(device=device)
    # end: fills
    # if: tied
    part.head.weight = part.embedding.weight
    # end: tied
    # if: balance_bias
    # if: lists_mixtures
    for mixture in mixtures(part):
    # end: lists_mixtures
    # if: not lists_mixtures
    for mixture in [layer.feed_forward for layer in part.layers.values()]:
    # end: not lists_mixtures
        mixture.balance_bias.zero_()
    # end: balance_bias
    # if: fills
    return part
    # end: fills
    # if: not fills
    return part.to_empty(device=device)
    # end: not fills
