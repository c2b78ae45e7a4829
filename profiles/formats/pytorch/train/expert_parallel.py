from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor


def apply_expert_parallel(part, meshes):
    """Each of EP ranks holds EXPERTS / EP of a layer's experts (arXiv 2006.16668)."""
    for mixture in mixtures(part):
        # if: shared_sequences
        mixture.sequence_groups = [meshes[name].get_group() for name in ("cp", "tp") if name in meshes and meshes[name].size() > 1]
        # end: shared_sequences
        # if: ep
        mixture.group = meshes["ep"].get_group()
        for name, parameter in list(mixture.experts.named_parameters()):
            mixture.experts.register_parameter(name, nn.Parameter(distribute_tensor(parameter, meshes["ep"], [Shard(0)])))
        # end: ep
