"""Memory that CUDA's caching allocator reserves: its rules, and the replay of a run's allocations on them.

Rules: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp of torch 2.13, without settings except
``expandable_segments``. A block that another stream reads when it is freed is reused as late as possible (``stream_memory``).
On a full device the allocator waits for all streams, releases segments without tensors (of expandable ones, free pages), and tries
again (``release_cached_blocks``). Not modelled: memory outside of the allocator (NCCL's buffers, CUDA's context), cuBLAS
workspaces, and temporaries that CUDA's kernels have and the CPU's have not.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Set
from dataclasses import dataclass
from math import inf

from strategist_runtime.simulate.timeline import Timeline

MIB = 2**20
BLOCK_MULTIPLE = 512
"""Every block size is rounded up to a multiple of this."""

SMALL_BLOCK_BYTES = MIB
"""Blocks up to this size are allocated from segments of SMALL_SEGMENT."""

SMALL_SEGMENT, MEDIUM_SEGMENT, SEGMENT_STEP = 2 * MIB, 20 * MIB, 2 * MIB
MEDIUM_BLOCK_BYTES = 10 * MIB
"""Blocks below this size are allocated from segments of MEDIUM_SEGMENT; larger ones get their own segments, rounded up to
SEGMENT_STEP.
"""

MAX_STEPS = 6
"""Most steps to replay; nearly always the second already reserves nothing more."""

COMPUTE_STREAM = 0
"""The default stream of allocations."""


class Block:
    """A part of a segment, linked to its neighbours (``before``, ``behind``)."""

    __slots__ = ("address", "before", "behind", "free", "pool", "size")

    def __init__(self, pool: "Pool", address: int, size: int) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.free = True
        self.before: Block | None = None
        self.behind: Block | None = None


class Pool:
    """The small or the large blocks of one stream. ``tail``: the last block, if segments are expandable."""

    def __init__(self, *, small: bool, address: int) -> None:
        self.small, self.begin, self.end = small, address, address
        self.tail: Block | None = None
        self._free: list[tuple[int, int, Block]] = []

    def take_fitting(self, size: int) -> Block | None:
        """Removes and returns the smallest free block that is large enough (of equal ones the first), None if there is none. The
        tail of an expandable segment is used only if no other block fits, since it can grow to any size.
        """
        index = bisect_left(self._free, (size,))
        if index < len(self._free) - 1 and self._free[index][2] is self.tail:
            index += 1
        return self._free.pop(index)[2] if index < len(self._free) else None

    def put(self, block: Block) -> None:
        block.free = True
        insort(self._free, (block.size, block.address, block))

    def take(self, block: Block) -> None:
        del self._free[bisect_left(self._free, (block.size, block.address))]

    def release_segments(self) -> int:
        """Removes the segments that hold nothing; returns their bytes."""
        empty = [block for _, _, block in self._free if block.before is None and block.behind is None]
        for block in empty:
            self.take(block)
        return sum(block.size for block in empty)

    def release_pages(self) -> int:
        """Removes the whole pages of the free blocks of expandable segments; returns their bytes. Blocks on both sides of such a
        hole are never joined.
        """
        page, released = SMALL_SEGMENT if self.small else MEDIUM_SEGMENT, 0
        for _, _, block in list(self._free):
            start, stop = block.address - self.begin, block.address - self.begin + block.size
            first, last = _rounded_up(start, page), stop // page * page
            if first < last:
                self._remove(block, first - start, stop - last)
                released += last - first
        return released

    def _remove(self, block: Block, front: int, back: int) -> None:
        """Removes a free block except for its first and last bytes."""
        self.take(block)
        before, behind, end = block.before, block.behind, block.address + block.size
        left = Block(self, block.address, front) if front else None
        right = Block(self, end - back, back) if back else None
        if before is not None:
            before.behind = left
        if behind is not None:
            behind.before = right
        if left is not None:
            left.before = before
            self.put(left)
        if right is not None:
            right.behind = behind
            self.put(right)
        if self.tail is block:
            self.tail = right


class Allocator:
    """Memory of one device, divided into blocks.

    ``capacity_bytes`` are those of the device; ``peak_bytes``, the most that was reserved, exceeds them if a block did not fit.
    ``releases``: how often cached blocks were released because the device was full; ``on_full`` is called before.
    """

    def __init__(self, *, expandable: bool = False, capacity_bytes: float = inf, on_full: Callable[[], None] | None = None) -> None:
        self.expandable, self.capacity_bytes = expandable, capacity_bytes
        self.allocated_bytes = self.reserved_bytes = self.peak_bytes = self.releases = 0
        self._on_full = on_full
        self._pools: dict[tuple[int, bool], Pool] = {}

    def allocate(self, size: int, stream: int = COMPUTE_STREAM) -> Block:
        """A block of at least ``size`` bytes; ``size`` must not be 0."""
        size = _rounded_up(size, BLOCK_MULTIPLE)
        small = size <= SMALL_BLOCK_BYTES
        pool = self._pools.get((stream, small))
        if pool is None:  # addresses of pools are far apart, so that growing segments never meet
            pool = self._pools[stream, small] = Pool(small=small, address=len(self._pools) << 50)
        block = pool.take_fitting(size) or self._reserve_block(pool, size)
        rest = block.size - size
        if rest >= BLOCK_MULTIPLE and (small or self.expandable or rest > SMALL_BLOCK_BYTES):
            self._split(block, size)
        block.free = False
        self.allocated_bytes += block.size
        return block

    def free(self, block: Block) -> None:
        """Frees a block and merges it with free neighbours."""
        self.allocated_bytes -= block.size
        pool = block.pool
        if (before := block.before) is not None and before.free:
            pool.take(before)
            block = self._merge(before, block)
        if (behind := block.behind) is not None and behind.free:
            pool.take(behind)
            block = self._merge(block, behind)
        pool.put(block)

    def release(self) -> None:
        """Releases all memory that holds nothing."""
        if self._on_full is not None:
            self._on_full()
        for pool in self._pools.values():
            self.reserved_bytes -= pool.release_pages() if self.expandable else pool.release_segments()
        self.releases += 1

    def _reserve_block(self, pool: Pool, size: int) -> Block:
        """A block of memory that the allocator reserves; a full device releases what is cached before."""
        if self.reserved_bytes + self._bytes_to_reserve(pool, size) > self.capacity_bytes:
            self.release()
        length = self._bytes_to_reserve(pool, size)
        self.reserved_bytes += length
        self.peak_bytes = max(self.peak_bytes, self.reserved_bytes)
        pool.end += length
        return self._extend_tail(pool, length) if self.expandable else Block(pool, pool.end - length, length)

    def _bytes_to_reserve(self, pool: Pool, size: int) -> int:
        """Bytes to reserve for a block: of a segment, or those that the free tail of an expandable segment lacks."""
        if self.expandable:
            free_bytes = pool.tail.size if pool.tail is not None and pool.tail.free else 0
            return _rounded_up(size - free_bytes, SMALL_SEGMENT if pool.small else MEDIUM_SEGMENT)
        return SMALL_SEGMENT if pool.small else MEDIUM_SEGMENT if size < MEDIUM_BLOCK_BYTES else _rounded_up(size, SEGMENT_STEP)

    def _extend_tail(self, pool: Pool, length: int) -> Block:
        """The tail of the pool's expandable segment, grown by ``length``."""
        tail = pool.tail
        if tail is not None and tail.free:
            pool.take(tail)
            tail.size += length
            return tail
        block = Block(pool, pool.end - length, length)
        if tail is not None:
            tail.behind, block.before = block, tail
        pool.tail = block
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.pool, block.address + size, block.size - size)
        rest.before, rest.behind = block, block.behind
        if block.behind is not None:
            block.behind.before = rest
        block.behind, block.size = rest, size
        if block.pool.tail is block:
            block.pool.tail = rest
        block.pool.put(rest)

    @staticmethod
    def _merge(first: Block, second: Block) -> Block:
        first.size += second.size
        first.behind = second.behind
        if second.behind is not None:
            second.behind.before = first
        if first.pool.tail is second:
            first.pool.tail = first
        return first


def _rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Most memory that the allocator reserves in a run, and how often a step releases cached blocks because the device is full."""

    peak_bytes: int
    releases: int = 0


def reserved(timeline: Timeline, *, expandable: bool = False, capacity_bytes: float = inf) -> Reserved:
    """Reserved memory of a run on a device of ``capacity_bytes``; ``timeline`` is one step of it, after the first.

    Replays the allocations before that step except the optimizer's states; then the step, with the states allocated at the begin
    of its update (also if parameters are updated in the backward pass, which makes them earlier), among blocks freed by
    activations; then the step again, until a step changes nothing. Allocations are on the streams of the step. A freed block
    is free on its own stream at once, as with FSDP2, which waits for events and does not record streams; or after its delay.
    """
    replay = _Replay(timeline, expandable=expandable, capacity_bytes=capacity_bytes)
    replay.begin()
    found = replay.step()
    for _ in range(MAX_STEPS - 1):
        before, found = found, replay.step()
        if found == before:
            break
    return found


class _Replay:
    """Replays steps on one allocator."""

    def __init__(self, timeline: Timeline, *, expandable: bool, capacity_bytes: float) -> None:
        self.allocator = Allocator(expandable=expandable, capacity_bytes=capacity_bytes, on_full=self._free_pending)
        self._timeline = timeline
        self._static_sizes = _sizes(timeline)
        self._states = {number for number in self._static_sizes if timeline.births[number].part == "optimizer"}
        self._blocks: dict[int, Block] = {}
        self._bytes: dict[int, int] = {}
        self._pending_frees: dict[int, list[Block]] = {}

    def begin(self) -> None:
        self._restore(self._static_sizes.keys() - self._states)

    def step(self) -> Reserved:
        """Replays the step from the state between steps; the optimizer's states may be missing until its update."""
        releases = self.allocator.releases
        has_states = self._states <= self._bytes.keys()
        self._restore(self._static_sizes.keys() if has_states else self._static_sizes.keys() - self._states)
        streams, begin = self._timeline.streams, self._timeline.begin
        for index, (number, change, moment) in enumerate(self._timeline.events[begin:], begin):
            if not has_states and moment.phase == "optimizer":
                self._restore(self._bytes.keys() | self._states)
                has_states = True
            delay = self._timeline.delays.get(index, 0)
            self._resize(
                number, self._bytes.get(number, 0) + change, streams.get(index, COMPUTE_STREAM), index + delay if delay else 0
            )
            for block in self._pending_frees.pop(index, ()):
                self.allocator.free(block)
        self._free_pending()
        return Reserved(peak_bytes=self.allocator.peak_bytes, releases=self.allocator.releases - releases)

    def _free_pending(self) -> None:
        """Frees the blocks that other streams have read until now."""
        for block in [block for blocks in self._pending_frees.values() for block in blocks]:
            self.allocator.free(block)
        self._pending_frees.clear()

    def _restore(self, numbers: Set[int]) -> None:
        """Frees all storages except ``numbers``, and allocates those of ``numbers`` that are missing."""
        for number in [number for number in self._bytes if number not in numbers]:
            self._resize(number, 0)
        for number, size in self._static_sizes.items():
            if number in numbers and number not in self._bytes:
                self._resize(number, size)

    def _resize(self, number: int, size: int, stream: int = COMPUTE_STREAM, until: int = 0) -> None:
        """Gives a storage another block; its old one is freed at once, or after the event ``until``."""
        old = self._blocks.pop(number, None)
        self._bytes.pop(number, None)
        if size:
            self._blocks[number], self._bytes[number] = self.allocator.allocate(size, stream), size
        if old is not None and until:
            self._pending_frees.setdefault(until, []).append(old)
        elif old is not None:
            self.allocator.free(old)


def _sizes(timeline: Timeline) -> dict[int, int]:
    """Bytes of each storage that existed before the step."""
    sizes: dict[int, int] = {}
    for number, change, _ in timeline.events[: timeline.begin]:
        sizes[number] = sizes.get(number, 0) + change
    return {number: size for number, size in sizes.items() if size}
