"""Contract values for tests: Hypothesis strategies of layouts, knobs and workloads, and one whole plan with a measurement."""

from hypothesis import strategies as st

from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.estimate import Estimate, MemoryParts, TimeParts
from strategist.contract.knobs import CHOICES, Candidate, Knobs
from strategist.contract.layout import AXES, Layout
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.model import MLAShape, ModelShape, MoEShape
from strategist.contract.plan import Digests, Plan, Reason
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES, Workload

degrees = st.sampled_from([1, 2, 3, 4, 8])
layouts = st.builds(
    Layout, pp=degrees, dp_replicate=degrees, dp_shard=degrees, cp=degrees, tp=degrees, ep=degrees, etp=degrees,
    axis_order=st.permutations(AXES).map(tuple),
)  # fmt: skip
knobs = st.builds(
    Knobs,
    micro_batch=st.integers(1, 64),
    reshard_group_size=st.integers(1, 8),
    pp_virtual_stages=st.integers(1, 4),
    **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
)
workloads = st.builds(
    Workload,
    seq_len=st.integers(1, 1 << 20),
    global_batch=st.integers(1, 1 << 16),
    precision=st.sampled_from(PRECISIONS),
    optimizer=st.sampled_from(OPTIMIZERS),
    train=st.sampled_from(TRAIN_MODES),
    lora_rank=st.integers(1, 512),
)

MODEL = ModelShape(
    name="small", layers=4, hidden_size=64, heads=8, kv_heads=4, head_size=8, ffn_size=128, vocab_size=256
)  # fmt: skip
MOE = MoEShape(experts=8, experts_per_token=2, expert_ffn_size=32, shared_experts=1, first_dense_layers=1)
MLA = MLAShape(query_rank=24, key_value_rank=16, rope_head_size=4, nope_head_size=8, value_head_size=8)
DEVICE = Device(
    name="card", kind="cuda", memory_bytes=1000, usable_memory_bytes=900, peak_flops={"fp32": 1e12, "bf16": 4e12},
    memory_bytes_per_second=1e11, matmul=Curve(points=((1e6, 0.5), (1e9, 0.9)), origin="assumed: a test"),
    attention_efficiency=0.5, memory_efficiency=0.8, launch_seconds=5e-6,
)  # fmt: skip
LINK = Link(name="link", bytes_per_second=1e9, pair_bytes_per_second=2e9, latency_seconds=1e-5)
CLUSTER = Cluster(
    name="2x2xcard", nodes=2, gpus_per_node=2, device=DEVICE, intra=LINK, inter=LINK,
    host_bytes_per_second=1e9, host_optimizer_bytes_per_second=1e9, assumed=("all of it",),
)  # fmt: skip
MEMORY = MemoryParts(
    parameters=1.0, unsharded_parameters=2.0, gradients=3.0, optimizer=4.0, activations=5.0, logits=6.0,
    communication=7.0, allocator=8.0,
)  # fmt: skip
TIME = TimeParts(
    matmul=1.0, attention=0.0, memory_bound=0.0, recompute=0.0, launch=0.0, tp_communication=0.1, cp_communication=0.0,
    ep_communication=0.0, dp_communication=0.2, pp_communication=0.0, bubble=0.0, offload=0.0, optimizer=0.5,
)  # fmt: skip
ESTIMATE = Estimate(
    memory=MEMORY, peak_memory_bytes=36.0, capacity_bytes=900.0, host_memory_bytes_per_node=0.0, time=TIME, step_seconds=1.8,
    tokens_per_second=100.0, mfu=0.4, communication_seconds=0.5, comm_ratio=0.2, exposed_comm_ratio=0.1,
)  # fmt: skip
PLAN = Plan(
    model=MODEL, cluster=CLUSTER, workload=Workload(seq_len=128, global_batch=8),
    candidate=Candidate(layout=Layout(dp_shard=4), knobs=Knobs(micro_batch=2)), estimate=ESTIMATE,
    reasons=(Reason(card="FSDP-001", policy="root", effect="prefer", text="weil es passt: ✓"),),
    digests=Digests(deck="d" * 16, profiles="p" * 16, calibration="c" * 16),
).identified()  # fmt: skip
MEASUREMENT = Measurement(
    plan_id=PLAN.id, kind=Kind.REAL, outcome=Outcome.OK, step_seconds=2.0, steps_measured=10, peak_memory_bytes=(30, 31, 32, 33),
    losses=(5.5, 5.4), versions={"torch": "2.13.0"},
)  # fmt: skip
