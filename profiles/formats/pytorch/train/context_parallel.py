import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def context_slices(device):
    # if: cp_in_order
    """Positions of the tokens of each context rank."""
    return torch.arange(SEQ_LEN, device=device).chunk(CP)
    # end: cp_in_order
    # if: not cp_in_order
    """Positions of the tokens of each context rank: two slices, so that all have equal work under a causal mask."""
    slices = torch.arange(SEQ_LEN, device=device).chunk(2 * CP)
    return [torch.cat((slices[rank], slices[-1 - rank])) for rank in range(CP)]
    # end: not cp_in_order


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
        # if: cuda
        return FLEX_ATTENTION(query, key, value, block_mask=self.mask, enable_gqa=KV_HEADS < HEADS)
        # end: cuda
        # if: not cuda
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask, enable_gqa=KV_HEADS < HEADS)
        # end: not cuda
