import torch
import torch.nn.functional as F

LEVELS = (  # of NormalFloat (arXiv 2305.14314, appendix E)
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022833234,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def quantise(weight):
    """A matrix in 4 bits. A row has 8 bytes that restore its constants, one for each constant of 64 weights, one for 2 weights."""
    blocks, tiny = weight.float().unflatten(-1, (-1, 64)), torch.finfo(torch.float32).tiny
    largest = blocks.abs().amax(-1)
    low, high = largest.aminmax(dim=-1, keepdim=True)
    step = (high - low) / 255
    constants = ((largest - low) / step.clamp_min(tiny)).round().to(torch.uint8)
    levels = torch.tensor(LEVELS, device=weight.device)
    relative = (blocks / largest.clamp_min(tiny).unsqueeze(-1)).flatten(-2)
    codes = torch.bucketize(relative, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)
    row = torch.cat((torch.cat((low, step), -1).view(torch.uint8), constants, codes[:, 0::2] << 4 | codes[:, 1::2]), -1)
    return F.pad(row, (0, -row.shape[1] % 4)).view(getattr(torch, PRECISION))  # as which FSDP2 moves bytes unchanged


def dequantise(packed, levels, dtype):
    row = packed.view(torch.uint8)
    begin = 8 + (row.shape[1] - 8) // 33  # of the codes; a block has one constant and 32 bytes of codes
    low, step = row[:, :8].view(torch.float32).unsqueeze(-1).unbind(1)
    level_pairs = torch.cartesian_prod(levels, levels)  # the two levels that each byte encodes
    relative = F.embedding(row[:, begin : begin + (begin - 8) * 32].int(), level_pairs).flatten(-2).unflatten(-1, (-1, 64))
    return (relative * (low + step * row[:, 8:begin]).unsqueeze(-1)).flatten(-2).to(dtype)


class QuantisedLinear(torch.autograd.Function):
    """``x W^T`` with a W in 4 bits that both passes dequantise; between them only the 4 bits are kept."""

    @staticmethod
    def forward(context, x, packed, levels):
        context.save_for_backward(packed, levels)
        return F.linear(x, dequantise(packed, levels, x.dtype))

    @staticmethod
    def backward(context, gradient):
        return gradient @ dequantise(*context.saved_tensors, gradient.dtype), None, None
