from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard


def apply_fsdp(part, meshes):
    """FSDP2: each layer is gathered by itself; embedding, last norm and head are gathered together (arXiv 2304.11277)."""
    how = {"mp_policy": MixedPrecisionPolicy(param_dtype=DTYPES[PRECISION], reduce_dtype=DTYPES[REDUCE_DTYPE])}
    # if: offload
    how["offload_policy"] = CPUOffloadPolicy(pin_memory=PIN_MEMORY and DEVICE == "cuda")
    # end: offload
    # if: apart
    for mixture in mixtures(part):
        cut = {"mesh": meshes["experts"], "shard_placement_fn": lambda parameter: Shard(1)}  # a part of each expert
        fully_shard(mixture.experts, **cut, **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: apart
    for layer in part.layers.values():
        fully_shard(layer, mesh=meshes["data"], **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(part, mesh=meshes["data"], **how, reshard_after_forward=RESHARD_ROOT)
