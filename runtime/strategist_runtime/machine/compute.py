"""Benchmarks of one device: matmuls by type and shape, attention, memory traffic, launches, and copies to and from the host."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.machine import AttentionSample, MatmulSample
from strategist_runtime.compat.kernels import fused_attention, scaled_matmul
from strategist_runtime.machine.stopwatch import mean_over_ranks, seconds_of, warm_up

BUDGET_SECONDS = 0.06
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CPU_DTYPES = ("fp32", "bf16")
FLOAT8 = "fp8"
FLOAT8_CAPABILITY = (8, 9)
"""Lowest compute capability of GPUs with float8 matmuls."""

MATMUL_SIZES = {"cpu": (32, 64, 128, 256, 512, 1024), "cuda": (256, 512, 1024, 2048, 4096, 8192, 16384)}
LEAN_RATIO = 4
"""A lean matmul has this factor fewer rows and more columns than a square one, and so the same FLOPs."""

HEADS = {"cpu": (8, 64), "cuda": (32, 128)}
"""Attention heads, and elements per head."""

SEQUENCES = {"cpu": (64, 128, 512), "cuda": (512, 2048, 8192)}
LARGE_BYTES = {"cpu": 2**23, "cuda": 2**28}
SMALL, DEPTH = 32, 8
OPTIMIZER_PARAMETERS = {"cpu": 2**21, "cuda": 2**26}
"""Parameters of the host's update; on a host with GPUs more than its caches hold."""

UPDATE_BYTES = 16
"""Bytes per parameter that an fp32 AdamW update accesses: parameter, gradient and two moments."""


def _dtypes(device: torch.device) -> Iterator[tuple[str, torch.dtype]]:
    return ((name, dtype) for name, dtype in DTYPES.items() if device.type == "cuda" or name in CPU_DTYPES)


def matmuls(device: torch.device) -> Iterator[MatmulSample]:
    """Square and lean matmuls of each type, in the form of linear layers."""
    sides = MATMUL_SIZES[device.type]
    for name in (*(name for name, _ in _dtypes(device)), *((FLOAT8,) if _has_float8(device) else ())):
        warm_up(linear(name, sides[-1], sides[-1], sides[-1], device), device)
        for side in sides:
            for rows, columns in ((side, side), (side // LEAN_RATIO, side * LEAN_RATIO)):
                yield matmul(name, rows, side, columns, device)


def matmul(dtype: str, rows: int, inner: int, columns: int, device: torch.device) -> MatmulSample:
    """One matmul of one type; the mean time over ranks."""
    seconds = seconds_of(linear(dtype, rows, inner, columns, device), device, BUDGET_SECONDS)
    return MatmulSample(dtype=dtype, rows=rows, inner=inner, columns=columns, seconds=mean_over_ranks(seconds, device))


def linear(dtype: str, rows: int, inner: int, columns: int, device: torch.device) -> Callable[[], Tensor]:
    value, weight = torch.randn(rows, inner, device=device), torch.randn(columns, inner, device=device)
    if dtype == FLOAT8:
        return partial(scaled_matmul, value.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn))
    return partial(F.linear, value.to(DTYPES[dtype]), weight.to(DTYPES[dtype]))


def _has_float8(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= FLOAT8_CAPABILITY


def attentions(device: torch.device) -> Iterator[AttentionSample]:
    """Causal attention, forward and backward, in each type."""
    heads, size = HEADS[device.type]
    for name, dtype in _dtypes(device):
        for length in SEQUENCES[device.type]:
            query, key, value = (
                torch.randn(1, heads, length, size, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
            )
            gradient = torch.ones(1, heads, length, size, device=device, dtype=dtype)

            def forward_backward(
                query: Tensor = query, key: Tensor = key, value: Tensor = value, gradient: Tensor = gradient
            ) -> None:
                torch.autograd.grad(fused_attention(query, key, value), (query, key, value), gradient)

            seconds = mean_over_ranks(seconds_of(forward_backward, device, BUDGET_SECONDS), device)
            yield AttentionSample(dtype=name, batch=1, heads=heads, seq_len=length, head_size=size, seconds=seconds)


def memory_rates(device: torch.device) -> tuple[float, float]:
    """Bytes/s read and written by an addition into an existing tensor, and by one that allocates its output."""
    size = LARGE_BYTES[device.type]
    first, second, out = (torch.ones(size // 4, device=device) for _ in range(3))
    streaming = seconds_of(lambda: torch.add(first, second, out=out), device, BUDGET_SECONDS)
    allocating = seconds_of(lambda: first + second, device, BUDGET_SECONDS)
    return 3 * size / mean_over_ranks(streaming, device), 3 * size / mean_over_ranks(allocating, device)


class _Layer(nn.Module):
    """A decoder layer in eager PyTorch: norms, an approximation of rotary positions, attention, a gated feed-forward."""

    def __init__(self, hidden: int, device: torch.device) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out, self.gate, self.up, self.down = (
            nn.Linear(hidden, hidden, bias=False, device=device) for _ in range(7)
        )
        self.first, self.second = (nn.RMSNorm(hidden, device=device) for _ in range(2))

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.first(hidden)
        parts = (part(normed).unflatten(-1, (2, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key, value = parts
        mixed = fused_attention(query + query.flip(-1) * 0.5, key + key.flip(-1) * 0.5, value)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.second(hidden)
        return hidden + self.down(F.silu(self.gate(normed)) * self.up(normed))


def layer_seconds(device: torch.device) -> float:
    """Seconds of a decoder layer, forward and backward, that is too small for computation to matter: the launch overhead."""
    layers = nn.Sequential(*(_Layer(SMALL, device) for _ in range(DEPTH)))
    rows = torch.ones(1, 8, SMALL, device=device)
    seconds = seconds_of(lambda: layers(rows).sum().backward(), device, BUDGET_SECONDS)
    return mean_over_ranks(seconds, device) / DEPTH


def host_rate(device: torch.device) -> float:
    """Bytes/s between device and host in the slower direction, while all ranks copy; on CPU the rate of a copy."""
    size = LARGE_BYTES[device.type]
    device_buffer = torch.ones(size // 4, device=device)
    host_buffer = torch.ones(size // 4, pin_memory=device.type == "cuda")
    to_host_seconds = seconds_of(lambda: host_buffer.copy_(device_buffer, non_blocking=True), device, BUDGET_SECONDS)
    to_device_seconds = seconds_of(lambda: device_buffer.copy_(host_buffer, non_blocking=True), device, BUDGET_SECONDS)
    return size / mean_over_ranks(max(to_host_seconds, to_device_seconds), device)


def host_update_rate(device: torch.device, ranks: int) -> float:
    """Bytes/s of parameters, gradients and moments that all ranks together update in host memory."""
    count = OPTIMIZER_PARAMETERS[device.type]
    parameter = torch.nn.Parameter(torch.ones(count))
    parameter.grad = torch.ones(count)
    optimizer = torch.optim.AdamW([parameter], fused=True)
    seconds = mean_over_ranks(seconds_of(optimizer.step, torch.device("cpu"), BUDGET_SECONDS), device)
    return ranks * UPDATE_BYTES * count / seconds
