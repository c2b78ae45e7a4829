"""Memory that is freed while other streams still read it."""

import pytest
import torch
from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.simulate.allocator import MIB, reserved
from strategist_runtime.simulate.stream_memory import StreamReaders
from strategist_runtime.simulate.timeline import StorageOrigin, Timeline
from strategist_runtime.simulate.virtual_streams import Stream, StreamOrder

from strategist.contract.rank_observation import Moment

pytestmark = pytest.mark.torch

NOW = Moment(phase="forward")
BIRTH = StorageOrigin(part="activations", module="")


def test_memory_is_reusable_after_the_host_has_synchronised_with_its_readers() -> None:
    order, timeline, tensor = StreamOrder(), Timeline(), torch.ones(4)
    readers, lane = StreamReaders(order), Stream(order)
    readers.follow(timeline)
    key = key_of(tensor.untyped_storage())
    readers.allocated(key)
    order.on_record_stream(tensor, lane.line)
    timeline.events.append((0, -16, NOW))
    readers.freed(key)
    timeline.events += [(1, 16, NOW)] * 3
    order.computing.synchronize()  # not yet ordered after the lane
    assert timeline.delays == {}
    order.computing.wait_stream(lane)
    order.computing.synchronize()
    assert timeline.delays == {0: 3}


def test_memory_read_by_its_own_stream_only_is_reusable_at_once() -> None:
    order, timeline, tensor = StreamOrder(), Timeline(events=[(0, -16, NOW)]), torch.ones(4)
    readers = StreamReaders(order)
    readers.follow(timeline)
    key = key_of(tensor.untyped_storage())
    readers.allocated(key)
    order.on_record_stream(tensor, order.current.line)
    readers.freed(key)
    readers.end()
    assert timeline.delays == {}


@pytest.mark.parametrize(("delays", "reserved_mib"), [({}, 40), ({1: 1}, 40), ({1: 2}, 60)])
def test_delayed_reuse_increases_reserved_memory(delays: dict[int, int], reserved_mib: int) -> None:
    changes = ((0, 1), (0, -1), (1, 1), (2, 1), (1, -1), (2, -1))
    events = [(number, change * 20 * MIB, NOW) for number, change in changes]
    assert reserved(Timeline(births=[BIRTH] * 3, events=events, delays=delays)).peak_bytes == reserved_mib * MIB
