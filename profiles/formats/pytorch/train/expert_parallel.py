from functools import cache

import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor


@cache
def expert_mesh(device):
    """The mesh of experts, over the ranks of the other meshes: some hold different experts, the others hold shards of each."""
    # if: ep
    comm = {"ep": "nccl" if device.type == "cuda" else "gloo"}  # so that all-to-alls do not wait for all-gathers
    return dist.init_device_mesh(device.type, tuple(EXPERT_MESH.values()), mesh_dim_names=tuple(EXPERT_MESH), backend_override=comm)
    # end: ep
    # if: not ep
    return dist.init_device_mesh(device.type, tuple(EXPERT_MESH.values()), mesh_dim_names=tuple(EXPERT_MESH))
    # end: not ep
# if: ep


def apply_expert_parallel(part, mesh):
    """Each of EP ranks holds EXPERTS / EP of a layer's experts (arXiv 2006.16668)."""
    # if: lists_mixtures
    for mixture in mixtures(part):
    # end: lists_mixtures
    # if: not lists_mixtures
    for mixture in [layer.feed_forward for layer in part.layers.values()]:
    # end: not lists_mixtures
        mixture.group = mesh.get_group()
        for name, parameter in list(mixture.experts.named_parameters()):
            mixture.experts.register_parameter(name, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))
# end: ep
