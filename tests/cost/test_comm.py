"""Collectives: what tokens on their way to experts cost on the links that they cross."""

from dataclasses import replace

import pytest

from cost.situations import EXPERTS, INTER, INTRA, WORKLOAD, cluster, estimate
from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.stack import TORCH
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.price import price
from strategist.expr.columns import row_of, table

ROUND = replace(EXPERTS, layers=1)
ACTIVATION = WORKLOAD.seq_len * ROUND.hidden_size * 2


def exchanged(on: Cluster, layout: Layout, stack: str = "choices", calibration: Calibration = NEUTRAL) -> float:
    """Seconds of one exchange: there and back, forward and backward, with each of the micro-batches."""
    candidate = Candidate(layout=layout, knobs=Knobs(micro_batch=1))
    times = candidate.accumulation(WORKLOAD)
    found = price(
        ROUND, on, WORKLOAD, table([row_of(candidate, times)]), calibration, replace(TORCH, dispatch=stack)
    )  # fmt: skip
    return float(found.time["ep_communication"][0]) / (4 * times)


def at_once(nodes: int, gpus_per_node: int) -> Cluster:
    """No latency."""
    links = (replace(link, latency_seconds=1e-15) for link in (INTRA, INTER))
    return cluster(nodes, gpus_per_node, *links)


def test_a_token_travels_to_each_of_its_experts() -> None:
    seconds = exchanged(at_once(1, 8), Layout(dp_shard=8, ep=8))
    assert seconds == pytest.approx(2 * 7 / 8 * ACTIVATION / INTRA.bytes_per_second, rel=1e-6)


def test_a_token_travels_once_to_each_rank_that_holds_some_of_them() -> None:
    """Two experts at random lie on the same one of 2 ranks half the time."""
    seconds = exchanged(at_once(1, 2), Layout(dp_shard=2, ep=2), "ranks")
    assert seconds == pytest.approx(1.5 * 1 / 2 * ACTIVATION / INTRA.bytes_per_second, rel=1e-6)


@pytest.mark.parametrize(("stack", "copies"), [("choices", 2.0), ("ranks", 1.5)])
def test_what_leaves_a_node_goes_through_each_rank_s_own_port(stack: str, copies: float) -> None:
    seconds = exchanged(at_once(2, 4), Layout(dp_shard=8, ep=8), stack)
    assert seconds == pytest.approx(copies * 1 / 2 * ACTIVATION / INTER.bytes_per_second, rel=1e-6)


def test_factors_stretch_what_shows_of_tensor_and_of_expert_parallelism() -> None:
    split, spread = Layout(tp=8), Layout(dp_shard=8, ep=8)
    whole = estimate(split).time.tp_communication
    assert estimate(split, calibration=Calibration(tensor=0.5)).time.tp_communication < 0.6 * whole
    assert exchanged(at_once(1, 8), spread, calibration=Calibration(expert=0.5)) == pytest.approx(
        exchanged(at_once(1, 8), spread) / 2
    )
