"""Throttling of a host that issues copies faster than the device executes them."""

import pytest
from strategist_runtime.parallel.copy_streams import CopyThrottle

from ..fake_cuda import DEVICE, FakeCuda

pytestmark = pytest.mark.torch


def test_the_copy_throttle_waits_for_all_rounds_except_the_previous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda().install(monkeypatch)
    throttle = CopyThrottle(DEVICE)
    for _ in range(3):
        throttle.begin()
    waits = [entry for entry in cuda.log if entry[0] == "host waits for"]
    assert waits == [("host waits for", "event 0"), ("host waits for", "event 1")]
    assert cuda.log.index(waits[0]) < cuda.log.index(("event 2", "on", "stream 0"))
