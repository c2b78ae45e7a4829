from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard


def apply_fsdp(part, meshes):
    """FSDP2: each layer is gathered by itself; embedding, last norm and head are gathered together (arXiv 2304.11277)."""
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[PRECISION], reduce_dtype=DTYPES[REDUCE_DTYPE])
    # if: hsdp
    how = {"mesh": meshes["dp_replicate", "dp_shard"], "mp_policy": policy}
    # end: hsdp
    # if: not hsdp
    how = {"mesh": meshes["dp_shard"], "mp_policy": policy}
    # end: not hsdp
    # if: offload
    how["offload_policy"] = CPUOffloadPolicy(pin_memory=PIN_MEMORY and DEVICE == "cuda")
    # end: offload
    # if: apart
    own = {**how, "mesh": meshes["experts"], "shard_placement_fn": lambda parameter: Shard(1)}  # a part of each expert
    for mixture in mixtures(part):
        fully_shard(mixture.experts, **own, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: apart
    for layer in part.layers.values():
        fully_shard(layer, **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(part, **how, reshard_after_forward=RESHARD_ROOT)
