"""The simulated caching allocator: its rules, and the memory that a run reserves."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from strategist_runtime.simulate.allocator import MIB, Allocator, Reserved, reserved
from strategist_runtime.simulate.timeline import StorageOrigin, Timeline

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.contract.rank_observation import Moment

from ..plans import TINY, WORKLOAD, plan
from .test_rank import simulated


def test_small_blocks_share_segments_of_two_mib():
    memory = Allocator()
    for _ in range(4096):
        memory.allocate(1)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (2 * MIB, 2 * MIB)
    memory.allocate(1)
    assert memory.reserved_bytes == 4 * MIB


@pytest.mark.parametrize(
    ("size", "segment"),
    [(MIB, 2 * MIB), (MIB + 1, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB), (11 * MIB, 12 * MIB)],
)
def test_segment_sizes_of_blocks(size, segment):
    memory = Allocator()
    memory.allocate(size)
    assert memory.reserved_bytes == segment


@pytest.mark.parametrize(("size", "taken"), [(18 * MIB, 18), (19 * MIB - 512, 19 - 512 / MIB), (19 * MIB, 20)])
def test_a_large_block_is_split_if_more_than_one_mib_remains(size, taken):
    memory = Allocator()
    memory.free(memory.allocate(20 * MIB))
    memory.allocate(size)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (taken * MIB, 20 * MIB)


def test_blocks_of_expandable_segments_are_split_at_any_size():
    memory = Allocator(expandable=True)
    memory.free(memory.allocate(20 * MIB))
    memory.allocate(20 * MIB - 512)
    assert memory.allocated_bytes == 20 * MIB - 512


def test_allocation_takes_the_smallest_sufficient_block():
    memory = Allocator()
    wide, narrow = memory.allocate(40 * MIB), memory.allocate(30 * MIB)
    memory.free(wide)
    memory.free(narrow)
    memory.allocate(30 * MIB)
    memory.allocate(40 * MIB)
    assert memory.reserved_bytes == 70 * MIB


def test_free_neighbours_are_merged_within_a_segment_only():
    memory = Allocator()
    memory.free(memory.allocate(40 * MIB))
    parts = [memory.allocate(10 * MIB) for _ in range(4)]
    other = memory.allocate(40 * MIB)
    for block in (parts[0], parts[2], parts[1], parts[3], other):
        memory.free(block)
    memory.allocate(40 * MIB)
    memory.allocate(40 * MIB)
    assert memory.reserved_bytes == 80 * MIB
    for _ in range(2):
        memory.allocate(1, stream=0)
    memory.allocate(80 * MIB)
    assert memory.reserved_bytes == 162 * MIB


def test_streams_do_not_share_blocks():
    memory = Allocator()
    memory.free(memory.allocate(40 * MIB, stream=1))
    memory.allocate(40 * MIB)
    assert memory.reserved_bytes == 80 * MIB


def test_an_expandable_segment_reuses_its_free_end_before_growing():
    memory = Allocator(expandable=True)
    memory.allocate(40 * MIB)
    end = memory.allocate(40 * MIB)
    memory.free(end)
    memory.allocate(60 * MIB)
    assert memory.reserved_bytes == 100 * MIB


def test_an_expandable_segment_prefers_a_hole_to_its_free_end():
    memory = Allocator(expandable=True)
    hole, _, end = memory.allocate(60 * MIB), memory.allocate(20 * MIB), memory.allocate(40 * MIB)
    memory.free(hole)
    memory.free(end)
    memory.allocate(40 * MIB)
    memory.allocate(80 * MIB)
    assert memory.reserved_bytes == 160 * MIB


def test_a_full_device_releases_segments_that_hold_nothing():
    memory = Allocator(capacity_bytes=100 * MIB)
    memory.free(memory.allocate(40 * MIB, stream=1))
    part = memory.allocate(20 * MIB)
    memory.free(memory.allocate(40 * MIB))
    memory.allocate(80 * MIB)
    assert (memory.reserved_bytes, memory.peak_bytes, memory.releases) == (100 * MIB, 100 * MIB, 1)
    memory.free(part)
    memory.allocate(10 * MIB)
    memory.allocate(20 * MIB)
    assert (memory.reserved_bytes, memory.peak_bytes, memory.releases) == (120 * MIB, 120 * MIB, 2)


def test_a_full_device_releases_whole_pages_of_growing_segments():
    memory = Allocator(expandable=True, capacity_bytes=100 * MIB)
    hole, _, end = memory.allocate(50 * MIB), memory.allocate(10 * MIB), memory.allocate(30 * MIB)
    memory.free(hole)
    memory.free(end)
    memory.allocate(60 * MIB, stream=1)
    assert memory.reserved_bytes == (10 + 10 + 60) * MIB
    memory.allocate(10 * MIB)
    assert (memory.reserved_bytes, memory.releases) == (80 * MIB, 1)
    memory.allocate(20 * MIB)
    assert (memory.reserved_bytes, memory.releases) == (100 * MIB, 1)


@settings(max_examples=60)
@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 60 * MIB), st.integers(0, 1), st.integers(0, 30)), min_size=1, max_size=60),
)
def test_blocks_stay_apart_on_a_device_that_is_full_again_and_again(expandable, wishes):
    memory = Allocator(expandable=expandable, capacity_bytes=120 * MIB)
    live = {}
    for index, (size, stream, victim) in enumerate(wishes):
        live[index] = memory.allocate(size, stream)
        if victim in live:
            memory.free(live.pop(victim))
        assert memory.peak_bytes >= memory.reserved_bytes >= memory.allocated_bytes == sum(block.size for block in live.values())
        for one, other in pairwise(sorted(live.values(), key=lambda block: block.address)):
            assert one.address + one.size <= other.address
    for block in live.values():
        memory.free(block)
    memory.release()
    assert memory.reserved_bytes == memory.allocated_bytes == 0


@settings(max_examples=60)
@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 60 * MIB), st.integers(0, 1), st.integers(0, 30)), min_size=1, max_size=60),
)
def test_freed_blocks_are_merged_completely(expandable, requests):
    memory = Allocator(expandable=expandable)
    live, segments = {}, []
    for index, (size, stream, victim) in enumerate(requests):
        before = memory.reserved_bytes
        live[index] = memory.allocate(size, stream)
        segments.append((stream, size <= MIB, memory.reserved_bytes - before))
        assert live[index].size >= size
        if victim in live:
            memory.free(live.pop(victim))
        assert memory.reserved_bytes >= memory.allocated_bytes == sum(block.size for block in live.values()) >= 0
        for one, other in pairwise(sorted(live.values(), key=lambda block: block.address)):
            assert one.address + one.size <= other.address
    for block in live.values():
        memory.free(block)
    assert memory.allocated_bytes == 0
    reserved = memory.reserved_bytes
    for stream, small, length in largest_blocks(segments, expandable):
        for _ in range(length // MIB if small else 1):
            memory.allocate(MIB if small else length, stream)
    assert memory.allocated_bytes == memory.reserved_bytes == reserved


def largest_blocks(segments, expandable):
    """The largest blocks when everything is free, largest first: segments, or what they have grown to."""
    if not expandable:
        return sorted((segment for segment in segments if segment[2]), key=lambda segment: -segment[2])
    sums = {}
    for stream, small, grown in segments:
        sums[stream, small] = sums.get((stream, small), 0) + grown
    return [(*pool, length) for pool, length in sums.items() if length]


FORWARD, UPDATE = Moment(phase="forward", module="head"), Moment(phase="optimizer")


def timeline(*steps, streams=None):
    """A timeline with parameters and states of 40 MiB each; storages from number 2 on, in MiB."""
    births = [StorageOrigin(part="parameters", module=""), StorageOrigin(part="optimizer", module="")]
    births += [StorageOrigin(part="activations", module="") for _ in range(2, 1 + max(number for number, _, _ in steps))]
    events = [(0, 40 * MIB, FORWARD), (1, 40 * MIB, FORWARD)] + [(number, change * MIB, moment) for number, change, moment in steps]
    return Timeline(births=births, events=events, begin=2, streams=streams or {})


def test_optimizer_states_fragment_memory_freed_by_the_first_step():
    """They take the place of its activations, which the second step then cannot reuse."""
    step = timeline((2, 60, FORWARD), (2, -60, FORWARD), (3, 1, UPDATE), (3, -1, UPDATE))
    assert step.peak_memory_bytes == 140 * MIB
    assert reserved(step).peak_bytes == (40 + 60 + 60 + 2) * MIB
    assert reserved(step, expandable=True).peak_bytes == (140 + 2) * MIB


def test_storages_kept_by_a_step_are_freed_by_the_next():
    assert reserved(timeline((2, 60, FORWARD), (3, 1, UPDATE))).peak_bytes == (40 + 60 + 40 + 2) * MIB


def test_a_resized_storage_belongs_to_the_current_stream():
    resized = ((2, 60, FORWARD), (2, -60, FORWARD), (2, 60, FORWARD), (2, -60, FORWARD), (3, 1, UPDATE), (3, -1, UPDATE))
    assert reserved(timeline(*resized, streams={4: 1})).peak_bytes == (40 + 60 + 60 + 60 + 2) * MIB


def test_a_run_counts_the_releases_of_each_step():
    """Two streams in turn need more than the device has, which holds the larger of both beside parameters and states."""
    in_turn = ((2, 60, FORWARD), (2, -60, FORWARD), (3, 70, FORWARD), (3, -70, FORWARD), (4, 1, UPDATE), (4, -1, UPDATE))
    step = timeline(*in_turn, streams={4: 1})
    assert reserved(step) == Reserved(peak_bytes=(40 + 60 + 60 + 70 + 2) * MIB)
    assert reserved(step, capacity_bytes=160 * MIB) == Reserved(peak_bytes=(40 + 40 + 70 + 2) * MIB, releases=2)
    assert reserved(step, capacity_bytes=140 * MIB).peak_bytes == (40 + 40 + 70) * MIB


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_extrapolated_and_traced_steps_reserve_equal_memory(tmp_path):
    """For plans on GPUs; CPU plans reserve no memory."""
    trial_plan = plan(
        layout=Layout(dp_shard=2),
        knobs=Knobs(micro_batch=2, recompute="selective"),
        options=Options(expandable_segments=True),
        model=replace(TINY, layers=8, hidden_size=256, head_size=64, ffn_size=768, vocab_size=8192),
        workload=replace(WORKLOAD, seq_len=256, global_batch=4, precision="bf16"),
        kind="cuda",
    )
    codec.save(trial_plan, tmp_path / "plan.json")
    few, all_of_them = simulated(tmp_path, 1), simulated(tmp_path, 1, "--whole")
    assert few.peak_reserved_bytes == all_of_them.peak_reserved_bytes
    assert few.peak_memory_bytes == all_of_them.peak_memory_bytes < few.peak_reserved_bytes
