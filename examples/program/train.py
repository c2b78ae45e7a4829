"""A training script of one's own, with flags of its own: a small decoder under FSDP2 on random tokens.

``strategist`` knows nothing of it but ``program.yaml``; run by hand it is ``torchrun --nproc-per-node=2 train.py --micro-batch 2``.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Decoder(nn.Module):
    """Layers of torch's own, causal, each computed again in the backward pass where that is asked for."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, self.recompute = options.hidden, options.recompute
        self.words = nn.Embedding(options.words, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, options.heads, options.ffn, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(options.layers)
        )
        self.head = nn.Linear(width, options.words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=x.device)
        for layer in self.layers:
            x = checkpoint(layer, x, mask, use_reentrant=False) if self.recompute else layer(x, mask)
        return self.head(x)


def main() -> None:
    """Trains and says how long each step took."""
    options = parse()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    torch.manual_seed(options.seed)
    model = Decoder(options).to(device)
    for part in (*model.layers, model):
        fully_shard(part, reshard_after_forward=not options.keep_parameters)
    optimizer = torch.optim.AdamW(model.parameters())
    accumulation = options.batch // (options.micro_batch * dist.get_world_size())
    for step in range(1, options.steps + 1):
        begun = time.perf_counter()
        loss = train_step(model, optimizer, options, accumulation, device)
        if dist.get_rank() == 0:
            print(f"step {step} took {time.perf_counter() - begun:.4f} s, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace, accumulation: int, device: torch.device
) -> float:
    """One step of all its micro-batches; the loss of the last."""
    for _ in range(accumulation):
        tokens = torch.randint(options.words, (options.micro_batch, options.length + 1), device=device)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        (loss / accumulation).backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def parse() -> argparse.Namespace:
    """The flags, with the model's shape among them."""
    parser = argparse.ArgumentParser()
    for name, default in (
        ("micro-batch", 1), ("batch", 8), ("length", 64), ("steps", 10), ("seed", 0),
        ("layers", 2), ("hidden", 64), ("heads", 4), ("ffn", 128), ("words", 256),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--keep-parameters", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
