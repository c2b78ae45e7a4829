"""Inputs with round numbers for price tests: a model with countable parameters on a device without allocator slack."""

from dataclasses import replace
from typing import Any

from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape, MoEShape
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.price import price
from strategist.expr.columns import row_of, table

DENSE = ModelShape(
    name="round", layers=16, hidden_size=1024, heads=16, kv_heads=8, head_size=64, ffn_size=4096, vocab_size=32768
)  # fmt: skip
EXPERTS = replace(DENSE, name="experts", moe=MoEShape(experts=8, experts_per_token=2, expert_ffn_size=2048))
WORKLOAD = Workload(seq_len=2048, global_batch=32)
DEVICE = Device(
    name="card", kind="cuda", memory_bytes=80 * 2**30, usable_memory_bytes=78 * 2**30,
    peak_flops={"fp32": 1e14, "bf16": 4e14}, memory_bytes_per_second=2e12,
    matmul=Curve(points=((1e8, 0.2), (1e10, 0.7)), origin="assumed: a test"),
    attention_efficiency=0.5, memory_efficiency=0.8, launch_seconds=5e-6,
)  # fmt: skip
INTRA = Link(name="inside", bytes_per_second=2e11, pair_bytes_per_second=2e11, latency_seconds=1e-5)
INTER = Link(name="across", bytes_per_second=2e10, pair_bytes_per_second=2e10, latency_seconds=3e-5)


def cluster(nodes: int = 1, gpus_per_node: int = 8, intra: Link = INTRA, inter: Link = INTER, **device: Any) -> Cluster:
    """Nodes of equal devices; ``device`` replaces fields of the device."""
    return Cluster(
        name="round", nodes=nodes, gpus_per_node=gpus_per_node, device=replace(DEVICE, **device), intra=intra, inter=inter,
        host_bytes_per_second=2e10, host_optimizer_bytes_per_second=1e11,
    )  # fmt: skip


def estimate(
    layout: Layout,
    model: ModelShape = DENSE,
    workload: Workload = WORKLOAD,
    on: Cluster | None = None,
    calibration: Calibration = NEUTRAL,
    **knobs: Any,
) -> Estimate:
    """The price of one legal candidate, on one node with as many devices as ranks unless ``on`` is given."""
    candidate = Candidate(layout=layout, knobs=Knobs(**knobs))
    assert candidate.violations(model, workload, layout.world_size) == ()
    columns = table([row_of(candidate, candidate.accumulation(workload))])
    return price(model, on or cluster(gpus_per_node=layout.world_size), workload, columns, calibration).estimate(0)
