"""What holds the host back that asks for copies faster than the device makes them."""

import pytest
from strategist_runtime.parallel.copy_streams import CopyThrottle

from ..fake_cuda import DEVICE, FakeCuda

pytestmark = pytest.mark.torch


def test_when_a_turn_begins_all_but_the_one_before_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda().install(monkeypatch)
    turns = CopyThrottle(DEVICE)
    for _ in range(3):
        turns.begin()
    waits = [entry for entry in cuda.log if entry[0] == "host waits for"]
    assert waits == [("host waits for", "event 0"), ("host waits for", "event 1")]
    assert cuda.log.index(waits[0]) < cuda.log.index(("event 2", "on", "stream 0"))
