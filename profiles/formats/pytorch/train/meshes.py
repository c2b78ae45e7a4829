import torch.distributed as dist


def make_meshes(device):
    """One mesh of all ranks, the fastest links last, and those that cut it in another way."""
    world = dist.init_device_mesh(device.type, tuple(MESH.values()), mesh_dim_names=tuple(MESH))
    meshes = {name: world[name] for name in MESH}
    # if: hsdp
    meshes["dp_replicate", "dp_shard"] = world["dp_replicate", "dp_shard"]
    # end: hsdp
    # if: cp
    # Neighbours in dp_shard share sequences; each holds shards of its own.
    outside = PP * DP_REPLICATE * DP_SHARD
    meshes["cp"] = dist.init_device_mesh(device.type, (outside, CP, TP), mesh_dim_names=("outside", "cp", "inside"))["cp"]
    # end: cp
    # if: apart
    # Experts have a mesh of their own over dp_shard x cp x tp: EP ranks hold different experts, the others hold shards of each.
    shards = DP_SHARD * CP * TP // EP
    own = {"ep": "nccl" if device.type == "cuda" else "gloo"}  # so that all-to-alls do not wait for all-gathers
    names = ("pp", "dp_replicate", "experts", "ep")
    world = dist.init_device_mesh(device.type, (PP, DP_REPLICATE, shards, EP), mesh_dim_names=names, backend_override=own)
    meshes["ep"] = world["ep"]
    # if: hsdp
    meshes["experts"] = world["dp_replicate", "experts"]
    # end: hsdp
    # if: not hsdp
    meshes["experts"] = world["experts"]
    # end: not hsdp
    # end: apart
    return meshes
