"""Expected time of trainings with failures and checkpoints, against random failures."""

from dataclasses import replace

import numpy as np
import pytest

from strategist.contract.options import Options
from strategist.contract.workload import Workload
from strategist.cost.training_time import checkpoint_bytes, expected_seconds

from .situations import DENSE, WORKLOAD, cluster

STEPS = 20_000
HOURLY = replace(cluster(), nodes=2, node_seconds_between_failures=7200.0, restart_seconds=300.0, storage_bytes_per_second=2e9)


def simulated_training(interval_seconds: float, wait: float, again: float, between: float, stretches: int) -> float:
    """Time of a training with randomly drawn failures."""
    chance, spent, done = np.random.default_rng(7), 0.0, 0
    until_failure = chance.exponential(between)
    while done < stretches:
        if until_failure >= interval_seconds + wait:
            done, spent, until_failure = done + 1, spent + interval_seconds + wait, until_failure - interval_seconds - wait
            continue
        spent, until_failure = spent + until_failure, chance.exponential(between)
        while until_failure < again:  # another failure before the restart is complete
            spent, until_failure = spent + until_failure, chance.exponential(between)
        spent, until_failure = spent + again, until_failure - again
    return spent


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_expected_time_equals_a_random_simulation(kind: str) -> None:
    options = Options(checkpoint=kind, checkpoint_interval=200)
    size = checkpoint_bytes(DENSE, WORKLOAD)
    stored, copied = size / (2 * 2e9), size / (HOURLY.devices * HOURLY.host_bytes_per_second)
    wait, again = (stored, 300 + stored) if kind == "sync" else (copied, 300 + 2 * stored)
    found = expected_seconds(2.0, STEPS, options, HOURLY, DENSE, WORKLOAD)
    assert found == pytest.approx(simulated_training(400.0, wait, again, 3600.0, STEPS // 200), rel=0.05)
    assert found > 1.1 * 2.0 * STEPS


def test_without_failures_the_time_is_that_of_steps_and_checkpoints() -> None:
    calm = replace(HOURLY, nodes=1, node_seconds_between_failures=1e12)
    found = expected_seconds(2.0, STEPS, Options(checkpoint_interval=1000), calm, DENSE, WORKLOAD)
    saves = STEPS / 1000 * checkpoint_bytes(DENSE, WORKLOAD) / 2e9
    assert found == pytest.approx(2.0 * STEPS + saves, rel=1e-4)


def test_youngs_checkpoint_interval_is_near_the_optimum() -> None:
    spot = replace(HOURLY, storage_bytes_per_second=0.05e9)
    wait = checkpoint_bytes(DENSE, WORKLOAD) / (2 * 0.05e9)
    young = round((2 * wait * 3600) ** 0.5 / 2.0)
    times = [
        expected_seconds(2.0, STEPS, Options(checkpoint_interval=steps), spot, DENSE, WORKLOAD)
        for steps in (young // 5, young, young * 5)
    ]
    assert times[1] < min(times[0], times[2])


def test_with_constant_failures_the_expected_time_stays_finite() -> None:
    failing = replace(HOURLY, node_seconds_between_failures=1.0)
    assert 1e100 < expected_seconds(2.0, STEPS, Options(), failing, DENSE, WORKLOAD) < float("inf")


def test_lora_checkpoints_contain_adapters_only() -> None:
    assert checkpoint_bytes(DENSE, Workload(train="lora")) < 0.1 * checkpoint_bytes(DENSE, Workload())
