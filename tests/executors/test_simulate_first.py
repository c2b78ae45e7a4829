"""Plans that may not fit are simulated first; those that do not fit are not run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.errors import InputError
from strategist.executors import simulator
from strategist.executors.local import LocalExecutor
from strategist.executors.shadow import ShadowExecutor
from strategist.executors.simulate_first import SimulateFirstExecutor

SETTINGS = TrialSettings(steps=4, init_timeout_seconds=20.0, step_timeout_seconds=20.0, wall_timeout_seconds=60.0)

pytestmark = pytest.mark.torch


def holding(plan: Plan, capacity_bytes: float, predicted: float = 1.0) -> Plan:
    """The plan on devices of this capacity, with a predicted share of it in use."""
    parts = dict.fromkeys(vars(plan.estimate.memory), 0.0)
    memory = replace(plan.estimate.memory, **{**parts, "parameters": predicted * capacity_bytes})
    return replace(plan, estimate=replace(plan.estimate, capacity_bytes=capacity_bytes, memory=memory))


def test_a_plan_that_cannot_fit_is_measured_by_simulation(
    plan: Plan, tmp_path: Path, make_executor: Callable[..., LocalExecutor]
) -> None:
    received: list[Progress] = []
    executor = SimulateFirstExecutor(inner=make_executor("none"))
    found = executor.execute(holding(plan, 1.0), tmp_path / "large", SETTINGS, received.append)
    assert (found.kind, found.outcome) == (Kind.SIMULATED, Outcome.OOM)
    assert found.peak_memory_bytes[0] > 1
    assert "not started" in found.evidence.message
    assert codec.load(Measurement, tmp_path / "large" / "measurement.json") == found
    assert {progress.phase for progress in received} == {"simulate"}


@pytest.mark.full
def test_a_plan_one_byte_too_large_is_not_run(
    plan: Plan, tmp_path: Path, make_executor: Callable[..., LocalExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = simulator.simulate(plan)
    peak = simulation.peak_rank.peak_memory_bytes
    monkeypatch.setattr(simulator, "_simulated", lambda *_: simulation.ranks)  # which are the same with any capacity
    executor = SimulateFirstExecutor(inner=make_executor("none"))
    found = executor.execute(holding(plan, peak - 1), tmp_path / "large", SETTINGS)
    assert (found.kind, found.outcome, found.peak_memory_bytes) == (Kind.SIMULATED, Outcome.OOM, (peak,))
    ran = executor.execute(holding(plan, peak), tmp_path / "fits", SETTINGS)
    assert (ran.kind, ran.outcome) == (Kind.REAL, Outcome.OK)


def test_a_plan_with_much_free_memory_is_not_simulated(
    plan: Plan, tmp_path: Path, make_executor: Callable[..., LocalExecutor]
) -> None:
    received: list[Progress] = []
    ran = SimulateFirstExecutor(inner=make_executor("none")).execute(
        holding(plan, 1000.0, 0.5), tmp_path, SETTINGS, received.append
    )
    assert (ran.kind, ran.outcome) == (Kind.REAL, Outcome.OK)
    assert "simulate" not in {progress.phase for progress in received}


def test_a_plan_that_cannot_run_is_refused_before_simulation(plan: Plan, tmp_path: Path) -> None:
    gpu = replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda"))
    large = holding(replace(plan, cluster=gpu), 1.0)
    with pytest.raises(InputError, match="this machine shows"):
        SimulateFirstExecutor(inner=ShadowExecutor()).execute(large, tmp_path, SETTINGS)
    assert not list(tmp_path.iterdir())
