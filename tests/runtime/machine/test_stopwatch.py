"""Timing of short pieces of work."""

import pytest
from strategist_runtime.machine import stopwatch

from ..fake_cuda import DEVICE, FakeCuda

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("seconds", "least"), [(1e-5, 1_000), (0.02, 10)])
def test_gpu_work_is_timed_by_cuda_events_over_many_launches(seconds: float, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host waits once per burst, and long work runs until the clock rate is sustained."""
    cuda, launched = FakeCuda().install(monkeypatch), 0

    def work() -> None:
        nonlocal launched
        launched += 1
        cuda.seconds += seconds

    assert stopwatch.seconds_of(work, DEVICE, 0.06) == pytest.approx(seconds)
    bursts = sum(entry[0] == "host waits for" for entry in cuda.log)
    assert bursts == stopwatch.BURSTS + 1
    assert launched / bursts >= least / stopwatch.BURSTS
    if seconds >= stopwatch.LONG_SECONDS:
        assert cuda.seconds >= stopwatch.SUSTAINED_SECONDS
