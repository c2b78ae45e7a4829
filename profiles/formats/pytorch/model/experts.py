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
        # if: grouped
        # if: ep
        gate, up, down = (weight.to_local().mT for weight in (self.gate, self.up, self.down))
        # end: ep
        # if: not ep and fsdp
        gate, up, down = self.gate.mT, self.up.mT, self.down.mT
        # end: not ep and fsdp
        # if: not fsdp
        rows, gate, up, down = (part.to(getattr(torch, PRECISION)) for part in (rows, self.gate.mT, self.up.mT, self.down.mT))
        # end: not fsdp
        padded = (counts.clamp(min=1) + TOKEN_ALIGNMENT - 1) // TOKEN_ALIGNMENT * TOKEN_ALIGNMENT  # zero rows between
        offsets = padded.cumsum(0, dtype=torch.int32)
        shift = offsets - padded - counts.cumsum(0) + counts
        positions = torch.arange(len(rows), device=rows.device) + shift.repeat_interleave(counts)
        rows = rows.new_zeros(int(offsets[-1]), HIDDEN_SIZE).index_copy(0, positions, rows)
        intermediate = F.silu(F.grouped_mm(rows, gate, offs=offsets)) * F.grouped_mm(rows, up, offs=offsets)
        return F.grouped_mm(intermediate, down, offs=offsets)[positions]
        # end: grouped
        # if: not grouped and ep
        weights = (weight.to_local() for weight in (self.gate, self.up, self.down))
        experts = zip(rows.split(counts.tolist()), *weights, strict=True)
        # end: not grouped and ep
        # if: not grouped and not ep
        experts = zip(rows.split(counts.tolist()), self.gate, self.up, self.down, strict=True)
        # end: not grouped and not ep
        # if: not grouped
        return torch.cat([F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down) for part, gate, up, down in experts])
        # end: not grouped
