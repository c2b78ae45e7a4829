import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def context_slices(device):
    """Positions of the tokens of each context rank: with head_tail two slices, so that all have equal work under a causal mask."""
    if CP_LOAD_BALANCE == "none":
        return torch.arange(SEQ_LEN, device=device).chunk(CP)
    slices = torch.arange(SEQ_LEN, device=device).chunk(2 * CP)
    return [torch.cat((slices[rank], slices[-1 - rank])) for rank in range(CP)]


# if: cuda
FLEX_ATTENTION = torch.compile(flex_attention, dynamic=False)


# end: cuda
class GatheredAttention:
    """This rank's queries, [B, heads, tokens, HEAD_SIZE], and the keys and values of all context ranks (arXiv 2407.21783)."""

    def __init__(self, slices, mesh):
        self.mesh, query_positions, key_positions = mesh, slices[mesh.get_local_rank()], torch.cat(list(slices))
        # if: cuda

        def causal(batch, head, query, key):
            return query_positions[query] >= key_positions[key]

        self.mask = create_block_mask(causal, None, None, len(query_positions), len(key_positions), device=query_positions.device)
        # end: cuda
        # if: not cuda
        self.mask = query_positions[:, None] >= key_positions
        # end: not cuda

    def __call__(self, query, key, value):
        key, value = (DTensor.from_local(part, self.mesh, [Shard(2)], run_check=False) for part in (key, value))
        key, value = (part.full_tensor(grad_placements=[Partial()]) for part in (key, value))
        grouped = query.shape[1] != key.shape[1]
        # if: cuda
        return FLEX_ATTENTION(query, key, value, block_mask=self.mask, enable_gqa=grouped)
        # end: cuda
        # if: not cuda
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask, enable_gqa=grouped)
        # end: not cuda


def apply_context_parallel(part, mesh, device):
    """Each rank has slices of every sequence."""
    slices = context_slices(device)
    attend = GatheredAttention(slices, mesh)
    for layer in part.layers.values():
        layer.attention.positions = slices[mesh.get_local_rank()]
        layer.attention.attend = attend
