import torch


from torch.nn.parallel import DistributedDataParallel


def build(first, last, meshes, device, weights):
    """Layers ``first`` to ``last - 1`` as this rank trains them, with their first weights."""
    with torch.device("meta"):
        part = Decoder(first, last)
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
    apply_recompute(part)
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
    draw_weights([part])
    # if: hugging_face
    if weights:
        load_weights(weights, [part])
    # end: hugging_face
    # if: not fsdp and not lora
    part.forward = torch.autocast(DEVICE, dtype=DTYPES[PRECISION], enabled=PRECISION != "fp32")(part.forward)
    # end: not fsdp and not lora
    # if: ddp
    buckets = {"bucket_cap_mb": BUCKET_CAP_MB, "gradient_as_bucket_view": GRADIENT_AS_BUCKET_VIEW}
    return DistributedDataParallel(part, static_graph=STATIC_GRAPH, **buckets)
    # end: ddp
    # if: not ddp
    return part
    # end: not ddp
