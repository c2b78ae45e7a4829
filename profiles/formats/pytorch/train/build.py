import torch


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
    apply_activation_checkpointing(part)
    # end: recompute
    # if: compile and not moe
    for layer in part.layers.values():
        layer.compile(fullgraph=FULLGRAPH)
    # end: compile and not moe
    # if: compile and moe
    for layer in part.layers.values():
        layer.attention.compile(fullgraph=FULLGRAPH)  # the number of rows of an expert is not known to a graph
    # end: compile and moe
    # if: fsdp
    apply_fsdp(part, meshes)
    # end: fsdp
    # if: offload
    part.to_empty(device="cpu")
    # end: offload
    # if: not offload
    part.to_empty(device=device)
    # end: not offload
    # if: tied
    part.head.weight = part.embedding.weight
    # end: tied
    # if: balance_bias
    for mixture in mixtures(part):
        mixture.balance_bias.zero_()
    # end: balance_bias
    # if: not fsdp and not lora and not fp32
    part.forward = torch.autocast(DEVICE, dtype=DTYPES[PRECISION])(part.forward)
    # end: not fsdp and not lora and not fp32
    return part
