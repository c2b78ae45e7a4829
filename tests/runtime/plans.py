"""Tiny plans for the runtime's tests. The device's figures are invented; only its kind and memory affect a trial."""

from dataclasses import fields

from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.estimate import Estimate, MemoryParts, TimeParts
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.options import Options
from strategist.contract.plan import Digests, Plan
from strategist.contract.workload import Workload
from strategist.units import GIB

TINY = ModelShape(
    name="tiny", layers=2, hidden_size=32, heads=4, kv_heads=4, head_size=8, ffn_size=48, vocab_size=64, rope_theta=10000.0
)
GROUPED = ModelShape(
    name="grouped", layers=2, hidden_size=32, heads=8, kv_heads=2, head_size=8, ffn_size=48, vocab_size=64, rope_theta=10000.0
)
WORKLOAD = Workload(seq_len=16, global_batch=8, precision="fp32")


def two_micro_batches(layout: Layout) -> int:
    """The size of micro-batches of which each rank has two in a step, or of two sequences if each rank has only two: enough to
    accumulate gradients and to fill two pipeline stages.
    """
    return max(2, WORKLOAD.global_batch // layout.data_ranks // 2)


NO_TIME = TimeParts(**{field.name: 0.0 for field in fields(TimeParts)})
NO_MEMORY = MemoryParts(**{field.name: 0.0 for field in fields(MemoryParts)})
NO_ESTIMATE = Estimate(
    memory=NO_MEMORY,
    peak_memory_bytes=0.0,
    capacity_bytes=0.0,
    host_memory_bytes_per_node=0.0,
    time=NO_TIME,
    step_seconds=0.0,
    tokens_per_second=0.0,
    mfu=0.0,
    communication_seconds=0.0,
    comm_ratio=0.0,
    exposed_comm_ratio=0.0,
)


def cluster(devices: int, *, kind: str = "cpu", memory_bytes: int = 4 * GIB) -> Cluster:
    """One node of ``devices`` slow devices."""
    device = Device(
        name="test-rank",
        kind=kind,
        memory_bytes=memory_bytes,
        usable_memory_bytes=memory_bytes,
        peak_flops={"fp32": 1e10},
        memory_bytes_per_second=1e10,
        matmul=Curve(points=((1e6, 0.5),), origin="assumed: test"),
        attention_efficiency=0.5,
        memory_efficiency=0.5,
        launch_seconds=1e-5,
    )
    link = Link(name="loopback", bytes_per_second=1e9, pair_bytes_per_second=1e9, latency_seconds=1e-5)
    return Cluster(
        name="test",
        nodes=1,
        gpus_per_node=devices,
        device=device,
        intra=link,
        inter=link,
        host_bytes_per_second=1e9,
        host_optimizer_bytes_per_second=1e9,
    )


def plan(
    *,
    layout: Layout = Layout(),  # noqa: B008 - frozen
    knobs: Knobs = Knobs(),  # noqa: B008 - frozen
    options: Options = Options(),  # noqa: B008 - frozen
    model: ModelShape = TINY,
    workload: Workload = WORKLOAD,
    memory_bytes: int = 4 * GIB,
    kind: str = "cpu",
) -> Plan:
    """A plan for as many devices as its layout has."""
    return Plan(
        model=model,
        cluster=cluster(layout.world_size, kind=kind, memory_bytes=memory_bytes),
        workload=workload,
        candidate=Candidate(layout=layout, knobs=knobs, options=options),
        estimate=NO_ESTIMATE,
        reasons=(),
        digests=Digests(deck="", profiles="", calibration=""),
    ).identified()
