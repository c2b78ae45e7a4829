from torch.distributed.device_mesh import init_device_mesh


def make_meshes():
    """One mesh of all ranks, the fastest links last; FSDP2 gets ``data``: shards, or replicas of shards."""
    names = ("pp", "dp_replicate", "dp_shard", "tp")
    world = init_device_mesh(DEVICE, (PP, DP_REPLICATE, DP_SHARD * CP, TP), mesh_dim_names=names)
    data = world["dp_replicate", "dp_shard"] if DP_REPLICATE > 1 else world["dp_shard"]
    # if: not more_meshes
    return {"pp": world["pp"], "tp": world["tp"], "data": data}
    # end: not more_meshes
    # if: more_meshes
    meshes = {"pp": world["pp"], "tp": world["tp"], "data": data}
    # end: more_meshes
    # if: cp
    # Neighbours in dp_shard share sequences; each holds shards of its own.
    outside = PP * DP_REPLICATE * DP_SHARD
    meshes["cp"] = init_device_mesh(DEVICE, (outside, CP, TP), mesh_dim_names=("outside", "cp", "inside"))["cp"]
    # end: cp
    # if: apart
    # Experts have a mesh of their own over dp_shard x cp x tp: EP ranks hold different experts, the others hold shards of each.
    shards = DP_SHARD * CP * TP // EP
    own = {"ep": "nccl" if DEVICE == "cuda" else "gloo"}  # so that all-to-alls do not wait for all-gathers
    names = ("pp", "dp_replicate", "experts", "ep")
    world = init_device_mesh(DEVICE, (PP, DP_REPLICATE, shards, EP), mesh_dim_names=names, backend_override=own)
    meshes["ep"] = world["ep"]
    meshes["experts"] = world["dp_replicate", "experts"] if DP_REPLICATE > 1 else world["experts"]
    # end: apart
    # if: more_meshes
    return meshes
    # end: more_meshes
