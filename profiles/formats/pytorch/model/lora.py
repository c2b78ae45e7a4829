import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    # if: qlora
    """``x W^T + LORA_ALPHA / LORA_RANK (x A^T) B^T`` with W in 4 bits; A and B are trained (arXiv 2305.14314)."""
    # end: qlora
    # if: not qlora
    """``x W^T + LORA_ALPHA / LORA_RANK (x A^T) B^T``, of which A and B are trained (arXiv 2106.09685)."""
    # end: not qlora

    def __init__(self, linear):
        super().__init__()
        # if: qlora
        self.nf4, self.bias = nn.Parameter(quantise(linear.weight), requires_grad=False), linear.bias
        # end: qlora
        # if: not qlora
        self.weight, self.bias = linear.weight, linear.bias
        # end: not qlora
        self.lora_a = nn.Parameter(torch.empty(LORA_RANK, linear.in_features, device="meta"))
        self.lora_b = nn.Parameter(torch.empty(linear.out_features, LORA_RANK, device="meta"))

    def forward(self, x):
        low_rank = F.linear(x, self.lora_a.to(x.dtype)) * (LORA_ALPHA / LORA_RANK)
        # if: not qlora
        return F.linear(x, self.weight, self.bias) + F.linear(low_rank, self.lora_b.to(x.dtype))
        # end: not qlora
        # if: qlora
        return QuantisedLinear.apply(x, self.nf4, self.levels) + F.linear(low_rank, self.lora_b.to(x.dtype), self.bias)
        # end: qlora
# if: moe


def apply_lora(part):
    """Freezes the model in the compute type, and adds LoRA to the linears of attention and feed-forwards."""
    # if: balance_bias
    for parameter in part.parameters():
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(getattr(torch, PRECISION))
    # end: balance_bias
    # if: not balance_bias
    part.requires_grad_(False).to(getattr(torch, PRECISION))
    # end: not balance_bias
    # if: feed_forward
    for block in [module for module in part.modules() if isinstance(module, Attention | FeedForward)]:
    # end: feed_forward
    # if: not feed_forward
    for block in [module for module in part.modules() if isinstance(module, Attention)]:
    # end: not feed_forward
        for name, module in list(block.named_children()):
            if isinstance(module, nn.Linear):
                setattr(block, name, LoRALinear(module))
# end: moe
