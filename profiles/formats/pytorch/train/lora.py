import torch
import torch.nn.functional as F
from torch import nn


class Adapted(nn.Linear):
    """``x W^T + LORA_ALPHA / LORA_RANK (x A^T) B^T``, of which A and B are trained (arXiv 2106.09685)."""

    def __init__(self, linear):
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.lora_a = nn.Parameter(torch.empty(LORA_RANK, linear.in_features))
        self.lora_b = nn.Parameter(torch.empty(linear.out_features, LORA_RANK))

    def forward(self, x):
        inside = F.linear(x, self.lora_a.to(x.dtype)) * (LORA_ALPHA / LORA_RANK)
        return super().forward(x) + F.linear(inside, self.lora_b.to(x.dtype))


def apply_lora(part):
    """Adapts the linears of attention and feed-forwards; all else is frozen, and kept in the type of computing."""
    # if: feed_forward
    for block in [module for module in part.modules() if isinstance(module, Attention | FeedForward)]:
    # end: feed_forward
    # if: not feed_forward
    for block in [module for module in part.modules() if isinstance(module, Attention)]:
    # end: not feed_forward
        for name, module in list(block.named_children()):
            if isinstance(module, nn.Linear):
                with torch.device("meta"):
                    setattr(block, name, Adapted(module))
    for name, parameter in part.named_parameters():
        if not name.endswith(("lora_a", "lora_b")):
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(DTYPES[PRECISION])
