"""What a device and its host do, kernel by kernel: kernels.py KIND --device cuda --out FILE"""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from strategist_runtime.compat.device import library_versions
from strategist_runtime.compat.kernels import fused_attention
from strategist_runtime.machine import compute
from strategist_runtime.machine.stopwatch import seconds_of, warm_up
from torch import Tensor, nn

BUDGET_SECONDS = 0.1
ROWS = {"cuda": 8192, "cpu": 64}
SHAPES = {
    "cuda": {
        "8b": [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256)],
        "70b": [(8192, 10240), (8192, 8192), (8192, 57344), (28672, 8192)],
        "405b": [(16384, 18432), (16384, 16384), (16384, 106496), (53248, 16384)],
    },
    "cpu": {"tiny": [(128, 384)]},
}
"""Inner and outer size of each linear: query, key and value together, output, gate and up together, down, head."""

LENGTHS = {"cuda": (2048, 8192, 32768), "cpu": (64,)}
HIDDEN, FFN, VOCABULARY = ({"cuda": 4096, "cpu": 64}, {"cuda": 14336, "cpu": 128}, {"cuda": 128256, "cpu": 512})
COPIED_BYTES = {"cuda": 2**30, "cpu": 2**22}
THREADS = (1, 8, 16)
Sample = dict[str, Any]


def matmuls(device: torch.device) -> Iterator[Sample]:
    """The profile's sizes, and the linears of models, in every type of the device; in float8 both operands are quantised."""
    types = ("bf16", "fp16", "fp8") if device.type == "cuda" else ("fp32",)
    for name in types:
        work = compute.linear(name, ROWS[device.type], 4096 if device.type == "cuda" else 64, 4096, device)
        warm_up(work, device)
        sides = [(side, side, side, "square") for side in compute.MATMUL_SIZES[device.type]]
        linears = [(ROWS[device.type], i, o, model) for model, sizes in SHAPES[device.type].items() for i, o in sizes]
        for rows, inner, columns, shape_name in (*sides, *linears):
            seconds = seconds_of(compute.linear(name, rows, inner, columns, device), device, BUDGET_SECONDS)
            yield {
                "dtype": name, "rows": rows, "inner": inner, "columns": columns, "of": shape_name, "seconds": seconds,
                "flops_per_second": 2 * rows * inner * columns / seconds,
            }  # fmt: skip


def attention(device: torch.device) -> Iterator[Sample]:
    """Causal, forward alone and with its backward pass."""
    heads, size = compute.HEADS[device.type]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    for length in LENGTHS[device.type]:
        parts = [torch.randn(1, heads, length, size, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
        gradient = torch.ones_like(parts[0])

        def forward(parts: list[Tensor] = parts) -> Tensor:
            return fused_attention(*parts)

        def both(parts: list[Tensor] = parts, gradient: Tensor = gradient) -> None:
            torch.autograd.grad(fused_attention(*parts), parts, gradient)

        sample = {"seq_len": length, "heads": heads, "head_size": size}
        yield {**sample, "pass": "forward", "seconds": seconds_of(forward, device, BUDGET_SECONDS)}
        yield {**sample, "pass": "forward and backward", "seconds": seconds_of(both, device, BUDGET_SECONDS)}


def layers(device: torch.device) -> Iterator[Sample]:
    """Norm, gated feed-forward's product, loss and update: forward and backward, with the bytes that they must move."""
    kind, dtype = device.type, torch.bfloat16 if device.type == "cuda" else torch.float32
    rows, hidden, ffn, vocabulary = ROWS[kind], HIDDEN[kind], FFN[kind], VOCABULARY[kind]
    norm = nn.RMSNorm(hidden, device=device, dtype=dtype)
    value = torch.randn(rows, hidden, device=device, dtype=dtype, requires_grad=True)
    gate, up = (torch.randn(rows, ffn, device=device, dtype=dtype, requires_grad=True) for _ in range(2))
    logits = torch.randn(rows // 4, vocabulary, device=device, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows // 4,), device=device)
    parameter = nn.Parameter(torch.ones(hidden * ffn, device=device))
    parameter.grad = torch.ones_like(parameter)
    works: dict[str, tuple[Callable[[], object], int]] = {
        "norm": (lambda: norm(value).sum().backward(), 5 * value.nbytes),
        "swiglu": (lambda: (F.silu(gate) * up).sum().backward(), 8 * gate.nbytes),
        "loss": (lambda: F.cross_entropy(logits.float(), targets).backward(), 4 * logits.nbytes),
        **{
            f"adamw {how}": (torch.optim.AdamW([parameter], **{how: True}).step, 7 * parameter.nbytes)  # type: ignore[arg-type]
            for how in ("fused", "foreach")
        },
    }
    for name, (work, least) in works.items():
        seconds = seconds_of(work, device, BUDGET_SECONDS)
        yield {"work": name, "least_bytes": least, "seconds": seconds, "least_bytes_per_second": least / seconds}


def copies(device: torch.device) -> Iterator[Sample]:
    """Between pinned host memory and the device: each way alone, and both at once on two streams."""
    size, pin = COPIED_BYTES[device.type], device.type == "cuda"
    on_device, second_on_device = (torch.ones(size // 4, device=device) for _ in range(2))
    in_host, second_in_host = (torch.ones(size // 4, pin_memory=pin) for _ in range(2))
    works: dict[str, tuple[Callable[[], object], int]] = {
        "to host": (lambda: in_host.copy_(on_device, non_blocking=True), size),
        "to device": (lambda: on_device.copy_(in_host, non_blocking=True), size),
    }
    if pin:
        streams = torch.cuda.Stream(), torch.cuda.Stream()

        def both() -> None:
            main = torch.cuda.current_stream()
            for stream, (to, source) in zip(streams, ((in_host, on_device), (second_on_device, second_in_host)), strict=True):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    to.copy_(source, non_blocking=True)
                main.wait_stream(stream)

        works["both at once"] = both, 2 * size
    for name, (work, moved) in works.items():
        seconds = seconds_of(work, device, BUDGET_SECONDS)
        yield {"way": name, "bytes": moved, "seconds": seconds, "bytes_per_second": moved / seconds}


def host_update(device: torch.device) -> Iterator[Sample]:
    """AdamW in host memory, by threads."""
    count = compute.OPTIMIZER_PARAMETERS[device.type]
    parameter = nn.Parameter(torch.ones(count))
    parameter.grad = torch.ones(count)
    update = torch.optim.AdamW([parameter], fused=True).step
    for threads in (number for number in THREADS if number <= len(os.sched_getaffinity(0))):
        torch.set_num_threads(threads)
        seconds = seconds_of(update, torch.device("cpu"), BUDGET_SECONDS)
        moved = compute.UPDATE_BYTES * count
        yield {"threads": threads, "parameters": count, "seconds": seconds, "state_bytes_per_second": moved / seconds}


KINDS = {"matmuls": matmuls, "attention": attention, "layers": layers, "copies": copies, "host_update": host_update}


def main() -> None:
    """Writes what was measured up to now after each sample, so that a run that is ended leaves what it had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    samples: list[Sample] = []
    for sample in KINDS[options.kind](torch.device(options.device)):
        samples.append(sample)
        found = {"kind": options.kind, "versions": dict(library_versions()), "samples": samples}
        options.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
