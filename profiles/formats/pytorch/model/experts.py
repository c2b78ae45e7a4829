import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    """Feed-forwards of the routed experts, their matrices stacked."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.empty(EXPERTS, EXPERT_FFN_SIZE, HIDDEN_SIZE))
        self.up = nn.Parameter(torch.empty(EXPERTS, EXPERT_FFN_SIZE, HIDDEN_SIZE))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN_SIZE, EXPERT_FFN_SIZE))

    def forward(self, rows, counts):
        """``rows`` [M, HIDDEN_SIZE] of the first expert, the second, ...; ``counts`` of each."""
        # if: not ep
        weights = (self.gate, self.up, self.down)
        # end: not ep
        # if: ep
        weights = (weight.to_local() for weight in (self.gate, self.up, self.down))
        # end: ep
        # if: grouped
        # if: not fsdp
        rows, *weights = (part.to(getattr(torch, PRECISION)) for part in (rows, *weights))
        # end: not fsdp
        gate, up, down = (weight.transpose(1, 2) for weight in weights)
        padded = (counts.clamp(min=1) + TOKEN_ALIGNMENT - 1) // TOKEN_ALIGNMENT * TOKEN_ALIGNMENT  # zero rows between
        ends = padded.cumsum(0, dtype=torch.int32)
        shift = (ends - padded) - (counts.cumsum(0) - counts)
        places = torch.arange(len(rows), device=rows.device) + shift.repeat_interleave(counts)
        rows = rows.new_zeros(int(ends[-1]), HIDDEN_SIZE).index_copy(0, places, rows)
        inside = F.silu(F.grouped_mm(rows, gate, offs=ends)) * F.grouped_mm(rows, up, offs=ends)
        return F.grouped_mm(inside, down, offs=ends)[places]
        # end: grouped
        # if: not grouped
        each = zip(rows.split(counts.tolist()), *weights, strict=True)
        return torch.cat([F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down) for part, gate, up, down in each])
        # end: not grouped
