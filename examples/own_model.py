"""A model of one's own for ``strategist simulate PLAN --model-code own_model:build`` (from this folder): a decoder that halves its
sequence on the way, a loss that leaves out what it cannot see, and where tensor parallelism cuts."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

WIDTH, HEADS, BLOCKS, WORDS = 1024, 16, 12, 32000


class Block(nn.Module):
    """Causal attention of heads as wide as what is left of them, then two linears."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (part(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + self.o(y)
        return x + self.down(F.gelu(self.up(self.between(x))))


class Halving(nn.Module):
    """Tokens [B, T] to logits [B, T / 2, WORDS]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == BLOCKS // 2:
                x = x[:, ::2] + x[:, 1::2]
        return self.head(x)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Of every second target."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets[:, 1::2].flatten())


def build() -> tuple[nn.Module, object, dict[str, object]]:
    """The module, its loss, and its plan for ``parallelize_module``."""
    with torch.random.fork_rng():
        model = Halving()
    cuts = {name: ColwiseParallel() for name in ("q", "k", "v", "up")} | {name: RowwiseParallel() for name in ("o", "down")}
    return model, loss, {f"blocks.*.{name}": style for name, style in cuts.items()}
