"""A sample answer, and the rendering of reports at a given width."""

import io
from dataclasses import replace

from rich.console import Console, RenderableType

from strategist.contract.answer import Alternative, Answer, Dropped
from strategist.contract.cluster import Cluster
from strategist.contract.estimate import Estimate, MemoryParts, TimeParts
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Digests, Plan, Reason
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.units import GIB

MODEL = resolve_model("32b").shape
CLUSTER: Cluster = replace(resolve_cluster("8x24GB"), host_memory_bytes=1024 * GIB)
ESTIMATE = Estimate(
    memory=MemoryParts(
        parameters=7.6 * GIB, unsharded_parameters=1.9 * GIB, gradients=0.5 * GIB, optimizer=0.0, activations=5.2 * GIB,
        logits=2.3 * GIB, communication=0.2 * GIB, allocator=0.6 * GIB,
    ),
    peak_memory_bytes=18.3 * GIB, capacity_bytes=22.5 * GIB, host_memory_bytes_per_node=512.4 * GIB,
    time=TimeParts(
        matmul=21.0, attention=2.0, memory_bound=1.5, recompute=7.0, launch=0.01, tp_communication=0.0, cp_communication=0.0,
        ep_communication=0.0, dp_communication=3.25, pp_communication=0.0, bubble=0.0, offload=12.0, optimizer=0.74,
    ),
    step_seconds=47.5, tokens_per_second=5516.0, mfu=0.412, communication_seconds=9.5, comm_ratio=0.2, exposed_comm_ratio=0.068,
)  # fmt: skip
PLAN = Plan(
    model=MODEL, cluster=CLUSTER, workload=Workload(),
    candidate=Candidate(layout=Layout(dp_shard=8), knobs=Knobs(recompute="full", offload="streamed", micro_batch=2)),
    estimate=ESTIMATE,
    reasons=(
        Reason(card="AC-002", policy="recompute-when-full", effect="prefer", text="Activations would fill the device."),
        Reason(card="OFF-003", policy="slow-host", effect="risk", text="Host copies may be slower [than] assumed."),
    ),
    digests=Digests(deck="d" * 16, profiles="p" * 16, calibration="c" * 16),
).identified()  # fmt: skip


def plan_with(layout: Layout, *, backends: tuple[str, ...] = ("native",), **knobs: object) -> Plan:
    """The sample plan with another candidate."""
    candidate = Candidate(layout=layout, knobs=replace(Knobs(), **knobs))  # type: ignore[arg-type]
    return replace(PLAN, candidate=candidate, backends=backends).identified()


OTHER = plan_with(Layout(pp=2, dp_replicate=2, tp=2), sequence_parallel=True, loss_parallel=True, no_sync=True)
ANSWER = Answer(
    request=Request(model="32b", gpus="8x24GB"), model=MODEL, cluster=CLUSTER,
    notes=("32b is resolved to qwen2.5-32b; name another preset to change it", "24GB is resolved to rtx4090"),
    verdict="Full training needs 524 GB of states, 8 devices hold 180 GB.",
    candidates=123_456,
    dropped=(Dropped(card="TP-003", policy="wide", because="Narrow matmuls waste the device.", candidates=700),),
    too_large=120_000, host_too_small=12, feasible=2_744, plans=(PLAN, OTHER),
    alternatives=(
        Alternative(title="LoRA adapters", flags=("--train", "lora"), note="trains 134 M of 32.8 B parameters", plan=OTHER,
            changes_convergence=True),
    ),
)  # fmt: skip


def rendered(report: RenderableType, width: int = 100, *, terminal: bool = False) -> str:
    """The text of a report on a console of this width."""
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, highlight=False, emoji=False, force_terminal=terminal)
    console.print(report, crop=False)
    return out.getvalue()
