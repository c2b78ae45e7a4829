"""The lower bound's bytes equal those that torch's collectives move in a simulated step, by mesh axis."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.bound.compulsory_work import BoundInputs
from strategist.bound.rates import line_rates
from strategist.bound.traffic import traffic_by_axis
from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import MoEShape
from strategist.contract.plan import Plan
from strategist.contract.simulation import SimulatedRank
from strategist.contract.stack import NATIVE
from strategist.cost.traffic import step_traffic
from strategist.expr.columns import row_of, table

from ..launch import forked
from ..plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(660)]

MODEL = replace(TINY, layers=4, hidden_size=128, heads=8, kv_heads=8, head_size=16, ffn_size=352, vocab_size=512)
EXPERTS = replace(MODEL, moe=MoEShape(experts=8, experts_per_token=8, expert_ffn_size=64))
"""Every token visits every expert, so that routing is deterministic."""
LONG = replace(WORKLOAD, seq_len=256, precision="bf16")
PARALLEL = {"sequence_parallel": True, "loss_parallel": True}
NO_SYNC = {"no_sync": True}

FSDP, HSDP, TP, WIDE = Layout(dp_shard=8), Layout(dp_replicate=2, dp_shard=4), Layout(dp_shard=4, tp=2), Layout(tp=8)
CP, PP, DEEP, TWO = Layout(dp_shard=2, cp=4), Layout(pp=4, dp_shard=2), Layout(pp=4), Layout(pp=2, dp_shard=2)
EP, EP4, ALL = Layout(dp_shard=8, ep=8), Layout(dp_shard=4, ep=4), Layout(pp=2, dp_shard=2, tp=2)
MIXED = Layout(tp=8, ep=8)
PLANS = {
    "fsdp": (FSDP, {}),
    "fsdp full": (FSDP, {"recompute": "full"}),
    "fsdp 4 micro-batches": (FSDP, {"micro_batch": 1}),
    "fsdp kept": (FSDP, {"reshard_after_forward": False}),
    "fsdp kept once": (FSDP, {"reshard_after_forward": False, "micro_batch": 1, **NO_SYNC}),
    "fsdp once": (FSDP, {"micro_batch": 1, **NO_SYNC}),
    "fsdp reduced in bf16": (FSDP, {"reduce_dtype": "bf16"}),
    "fsdp muon": (FSDP, {}),
    "ddp": (Layout(dp_replicate=8), {}),
    "ddp once": (Layout(dp_replicate=8), {"micro_batch": 1, **NO_SYNC}),
    "ddp bf16": (Layout(dp_replicate=8), {"comm_hook": "bf16"}),
    "hsdp": (HSDP, {}),
    "hsdp once": (HSDP, {"micro_batch": 1, **NO_SYNC}),
    "tp": (TP, {"loss_parallel": True}),
    "tp sequence": (TP, PARALLEL),
    "tp sequence full": (TP, {**PARALLEL, "recompute": "full"}),
    "tp sequence selective": (TP, {**PARALLEL, "recompute": "selective"}),
    "tp 8": (WIDE, PARALLEL),
    "tp 8 micro-batches": (WIDE, {**PARALLEL, "micro_batch": 1}),
    "cp ring": (CP, {}),
    "pp 1f1b": (PP, {"micro_batch": 1, "pp_schedule": "1f1b", **NO_SYNC}),
    "pp gpipe": (TWO, {"micro_batch": 1, "pp_schedule": "gpipe", **NO_SYNC}),
    "pp interleaved": (TWO, {"micro_batch": 1, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, **NO_SYNC}),
    "pp breadth first": (TWO, {"micro_batch": 1, "pp_schedule": "looped_bfs", "pp_virtual_stages": 2, **NO_SYNC}),
    "pp zero bubble": (
        TWO,
        {"micro_batch": 1, "pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False, **NO_SYNC},
    ),
    "pp alone": (DEEP, {"micro_batch": 1, "pp_schedule": "1f1b", **NO_SYNC}),
    "pp tp": (ALL, {"micro_batch": 1, "pp_schedule": "1f1b", **PARALLEL, **NO_SYNC}),
    "pp replicas": (Layout(pp=4, dp_replicate=2), {"micro_batch": 1, "pp_schedule": "1f1b", **NO_SYNC}),
    "experts tp": (MIXED, PARALLEL),
    "experts tp whole sequence": (MIXED, {"loss_parallel": True}),
    "experts tp full": (MIXED, {**PARALLEL, "recompute": "full"}),
    "ep": (EP, {}),
    "ep 4": (EP4, {}),
    "ep 4 full": (EP4, {"recompute": "full"}),
    "ep 4 micro-batches": (EP4, {"micro_batch": 1}),
}
"""Layouts on one node, and their settings."""

REPEATED_COLLECTIVES = "selective recomputation repeats its collectives"
DUPLICATES = "a token with several experts on one rank is sent there once per expert"
EXPECTED_EXCESS = {
    ("fsdp muon", "dp_shard"): (1.2226, "each rank gathers whole matrices for its update"),
    ("tp sequence selective", "tp"): (1.3364, REPEATED_COLLECTIVES),
    ("cp ring", "cp"): (
        14 / 6,
        "keys and values are sent in the forward and again in the backward pass, and their gradients in fp32 once around the ring",
    ),
    ("pp breadth first", "dp_shard"): (
        1.6684,
        "each forward pass reshards the parameters: a single gather is enough only if they are kept",
    ),
    ("pp alone", "pp"): (2.0, "without FSDP2 the residual stream stays in fp32 under autocast"),
    ("experts tp full", "ep"): (1.2, "the last exchange is repeated although no gradient needs it"),
    ("ep 4", "ep"): (2.0, DUPLICATES),
    ("ep 4 full", "ep"): (2.4, f"{DUPLICATES}; and the last exchange is repeated although no gradient needs it"),
    ("ep 4 micro-batches", "ep"): (2.0, DUPLICATES),
}
"""Ratio of torch's bytes to the bound, with the reason, where they differ."""


def planned(name: str) -> Plan:
    layout, knobs = PLANS[name]
    model = EXPERTS if layout.ep > 1 else MODEL
    rows = 2 * layout.pp if layout.pp > 1 else 4
    optimizer = "muon" if name.endswith("muon") else LONG.optimizer
    workload = replace(LONG, global_batch=rows * layout.data_ranks, optimizer=optimizer)
    return plan(layout=layout, knobs=Knobs(**{"micro_batch": 4, **knobs}), model=model, workload=workload, kind="cuda")


def simulated(name: str, folder: Path) -> list[SimulatedRank]:
    """Simulations of the first rank of each stage."""
    each = planned(name)
    codec.save(each, folder / "plan.json")
    found = []
    for stage in range(each.candidate.layout.pp):
        out = folder / f"{stage}.json"
        arguments = [str(folder / "plan.json"), "--rank", str(each.candidate.layout.first_rank(stage)), "--out", str(out)]
        done = forked(1, ["strategist_runtime.simulate", *arguments])
        assert done.returncode == 0, done.stderr
        found.append(codec.load(SimulatedRank, out))
    return found


def ring_bytes(axis: str, collective: str, ranks: int, message_bytes: float) -> float:
    """Bytes into one rank with ring collectives; a pair's message arrives completely, and sent bytes are counted by the receiver.
    torch's gradient ring sends all of an exchange to the next rank.
    """
    if (axis, collective) == ("cp", "all_to_all"):
        return message_bytes
    shares = {"all_reduce": 2 * (ranks - 1) / ranks, "recv": 1.0, "send": 0.0}
    return shares.get(collective, (ranks - 1) / ranks) * message_bytes


def moved(name: str, folder: Path) -> dict[str, float]:
    """Bytes into a rank by axis: for a pipeline of the rank that receives most, otherwise the mean over stages."""
    layout, ranks = PLANS[name][0], simulated(name, folder)
    sizes = {"dp_shard": layout.fsdp_ranks, "dp_replicate": layout.dp_replicate, "tp": layout.tp, "cp": layout.cp, "ep": layout.ep}
    by_axis: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(ranks))
    for stage, rank in enumerate(ranks):
        for each in rank.traffic:
            axis = "dp_shard" if each.axis == "world" else each.axis
            by_axis[axis][stage] += ring_bytes(axis, each.collective, sizes.get(axis, layout.pp), each.message_bytes)
    return {axis: max(found) if axis == "pp" else sum(found) / len(found) for axis, found in by_axis.items()}


def bound_bytes(name: str) -> dict[str, float]:
    """Bytes into a rank by axis as counted by the bound, with rings."""
    each = planned(name)
    setting = BoundInputs(model=each.model, workload=each.workload, candidate=each.candidate, stack=NATIVE)
    rates = replace(line_rates(each.cluster, each.workload, NATIVE, float8=False), in_switch_intra=False)
    return {axis: found.intra for axis, found in traffic_by_axis(setting, each.cluster, rates).items()}


def priced(name: str) -> dict[str, float]:
    """Bytes by axis as counted by the price, for collectives that are equal on every stage."""
    each = planned(name)
    columns = table([row_of(each.candidate, each.candidate.accumulation(each.workload))])
    found: dict[str, float] = defaultdict(float)
    for row in step_traffic(each.model, each.cluster, each.workload, columns):
        found[row.axis.split(",")[0]] += row.message_bytes
    return found


NOT_COMPARED = {"tp", "pp"}
"""Axes whose price omits reductions of the embedding, or counts transfers in both directions."""


def check(name: str, folder: Path) -> None:
    expected, found = bound_bytes(name), moved(name, folder)
    if PLANS[name][0].pp == 1:
        for axis, size in priced(name).items():
            assert axis in NOT_COMPARED or size == pytest.approx(found[axis], rel=0.01, abs=4096), axis
    for axis, size in expected.items():
        beyond = EXPECTED_EXCESS.get((name, axis), (1.0, ""))[0]
        assert found.get(axis, 0.0) == pytest.approx(size * beyond, rel=0.01, abs=4096), (
            axis,
            found.get(axis, 0.0) / max(size, 1.0),
        )


CHEAP = ("fsdp", "tp sequence", "experts tp")
"""Cases of every run; the others belong to the full run."""


@pytest.mark.parametrize("name", CHEAP)
def test_the_bound_counts_the_bytes_of_collectives(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in PLANS if name not in CHEAP])
def test_the_bound_counts_the_bytes_of_collectives_of_other_layouts(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
