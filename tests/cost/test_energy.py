"""Energy of a step, measured at the wall."""

from dataclasses import replace

import numpy as np
import pytest

from strategist.contract.layout import Layout
from strategist.cost.energy import COMPUTING_SHARE, COOLING_FACTOR, NODE_SHARE, limit_watts, step_joules
from strategist.profiles.cluster import resolve_cluster

from .situations import DENSE, WORKLOAD, cluster, estimate


def seconds(**parts: float) -> dict[str, np.ndarray]:
    names = ("matmul", "launch", "tp_communication", "dp_communication", "bubble", "offload", "optimizer")
    return {name: np.array([parts.get(name, 0.0)]) for name in names}


def test_power_of_a_computing_h100_node_equals_the_measured_one() -> None:
    limit = limit_watts(resolve_cluster("8xH100"))
    assert limit == 8 * 700
    drawn = step_joules(limit, seconds(matmul=1.0))[0] / COOLING_FACTOR
    assert drawn == pytest.approx(8400, rel=0.01)  # arXiv 2412.08602


def test_idle_draws_less_than_communication_and_communication_less_than_compute() -> None:
    computing, talking, waiting = (
        step_joules(100.0, seconds(**{part: 1.0}))[0] for part in ("matmul", "dp_communication", "bubble")
    )
    assert waiting < talking < computing == pytest.approx(100 * COOLING_FACTOR * (COMPUTING_SHARE + NODE_SHARE))


def test_a_plan_with_bubbles_draws_less_power_but_needs_more_energy_per_token() -> None:
    even, waits = cluster(power_watts=500.0), Layout(dp_replicate=8)
    fast = estimate(Layout(dp_shard=8), DENSE, WORKLOAD, on=even)
    slow = estimate(Layout(pp=8), DENSE, replace(WORKLOAD, global_batch=8), on=even)
    assert waits.world_size == 8
    watts = [found.energy_joules_per_step / found.step_seconds for found in (fast, slow)]
    assert watts[1] < watts[0]
    assert all(
        8 * 500 * COOLING_FACTOR * (0.2 + NODE_SHARE) < draw < 8 * 500 * COOLING_FACTOR * (COMPUTING_SHARE + NODE_SHARE)
        for draw in watts
    )
    assert slow.energy_joules_per_step > fast.energy_joules_per_step / 4  # a quarter of the sequences


def test_energy_is_unknown_without_a_power_limit() -> None:
    assert estimate(Layout(dp_shard=8)).energy_joules_per_step is None
    assert limit_watts(resolve_cluster("4xcpu")) is None
