"""Llama 3 405B on 512 H100s: which of five published layouts fit? ``python examples/llama3_405b_layouts.py``, on a laptop.

Each is priced, and its first and last stage simulated on cards of 80 GB, in bf16, as layers are written; what others keep as ZeRO-1
is FSDP2 without resharding.
"""

import sys
from dataclasses import replace

from strategist import api
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.units import GIB

TITAN = "TorchTitan, benchmarks/llama3_h100_202412_torchtitan.md"
FULL = Knobs(recompute="full", sequence_parallel=True, loss_parallel=True)
STAGES = replace(FULL, no_sync=True)
ROOT = Options(reshard_root=True)
PUBLISHED = {
    "1F1B, 8k tokens": (
        TITAN, 8192, 256, Candidate(layout=Layout(pp=8, dp_shard=8, tp=8), knobs=replace(STAGES, micro_batch=4), options=ROOT),
    ),
    "interleaved 1F1B, 8k": (
        TITAN, 8192, 256,
        Candidate(
            layout=Layout(pp=8, dp_shard=8, tp=8), options=ROOT,
            knobs=replace(STAGES, micro_batch=4, pp_schedule="interleaved_1f1b", pp_virtual_stages=2),
        ),
    ),
    "1F1B, 32k": (
        TITAN, 32768, 64, Candidate(layout=Layout(pp=8, dp_shard=8, tp=8), knobs=replace(STAGES, micro_batch=1), options=ROOT),
    ),
    "FSDP2 x TP, no stages": (
        "TorchTitan, train_configs/llama3_405b.toml (on 128)", 8192, 128,
        Candidate(layout=Layout(dp_shard=64, tp=8), knobs=replace(FULL, micro_batch=2), options=ROOT),
    ),
    "16 stages, nothing recomputed": (
        "arXiv 2407.21783, table 4 (on 8,192), here in 1F1B", 8192, 128,
        Candidate(
            layout=Layout(pp=16, dp_shard=4, tp=8),
            knobs=Knobs(sequence_parallel=True, reshard_after_forward=False, no_sync=True),
        ),
    ),
}  # fmt: skip


def main() -> None:
    """A line for each layout, or for those that are named."""
    print(f"{'GiB of a device':34} {'predicted':>9} {'simulated':>9} {'reserved':>9} {'of':>5}")
    for name in sys.argv[1:] or PUBLISHED:
        source, seq_len, global_batch, candidate = PUBLISHED[name]
        workload = Workload(seq_len=seq_len, global_batch=global_batch)
        plan = api.price(Request(model="llama3-405b", gpus="64x8xH100", workload=workload), candidate)
        simulation = api.simulate(plan)
        found, capacity = simulation.peak_rank, simulation.capacity_bytes
        reserved = found.peak_reserved_bytes or 0
        sizes = (plan.estimate.memory.allocated, found.peak_memory_bytes, reserved)
        verdict = "fits" if reserved <= capacity else "does not fit"
        print(
            f"{name:34} {' '.join(f'{size / GIB:9.1f}' for size in sizes)} {capacity / GIB:5.1f}  {verdict}  ({source})", flush=True
        )


if __name__ == "__main__":
    main()
