"""One rank of two with context parallelism: messages of a layer's attention in a step; started by test_context."""

import json
import sys
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime.compat import context as compat_context
from strategist_runtime.measure.traffic import CollectiveCounter
from strategist_runtime.model.attention import Core
from strategist_runtime.rank_process import leave
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

ROWS, HEADS, KEY_HEADS, TOKENS, HEAD_SIZE = 2, 4, 2, 32, 8
"""Sizes of whole sequences."""

KINDS = (("sdpa", "allgather"), ("sdpa", "alltoall"), ("flex", "allgather"))


def messages_of_a_step(mesh: DeviceMesh, attention: str, rotate: str, dtype: torch.dtype) -> dict[str, list[int]]:
    """The bytes of each message, by collective."""
    core, mine = Core(), TOKENS // mesh.size()
    compat_context.parallelize_attention(core, mesh, attention, rotate)
    order = compat_context.head_tail_order(TOKENS, mesh.size(), torch.device("cpu"))[None]
    compat_context.shard_sequence(mesh, [torch.zeros(1, TOKENS)], order)
    heads = (HEADS, KEY_HEADS, KEY_HEADS)
    parts = [torch.randn(ROWS, count, mine, HEAD_SIZE, dtype=dtype, requires_grad=True) for count in heads]
    mask = None if attention == "sdpa" else torch.ones(1, 1, mine, TOKENS, dtype=torch.bool)
    with CollectiveCounter() as meter:
        core(*parts, mask).sum().backward()
    found = defaultdict(list)
    for call in meter.calls:
        found[call.name].append(call.message_bytes)
    return found


def main(target: Path) -> None:
    """Writes this rank's messages, by kind of attention and dtype."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    found = {
        f"{attention} {rotate} {dtype}": messages_of_a_step(mesh, attention, rotate, dtype)
        for attention, rotate in KINDS
        for dtype in (torch.float32, torch.bfloat16)
    }
    if dist.get_rank() == 0:
        target.write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
