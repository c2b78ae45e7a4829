"""Memory that CUDA's caching allocator reserves: its rules, and the replay of a run's allocations on them.

Rules: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp of torch 2.13, without settings except
``expandable_segments``. A block that another stream reads when it is freed is reused as late as possible (``stream_memory``).
Not modelled: memory outside of the allocator (NCCL's buffers, CUDA's context), cuBLAS workspaces, temporaries that CUDA's
kernels have and the CPU's have not, and the release of cached segments when a device is full.
"""

from bisect import bisect_left, insort
from collections.abc import Set

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
        self.small, self.end = small, address
        self.tail: Block | None = None
        self._free: list[tuple[int, int, Block]] = []

    def fitting(self, size: int) -> Block | None:
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


class Allocator:
    """Memory of one device, divided into blocks."""

    def __init__(self, *, expandable: bool = False) -> None:
        self.expandable = expandable
        self.allocated_bytes = self.reserved_bytes = 0
        self._pools: dict[tuple[int, bool], Pool] = {}

    def allocate(self, size: int, stream: int = COMPUTE_STREAM) -> Block:
        """A block of at least ``size`` bytes; ``size`` must not be 0."""
        size = _rounded_up(size, BLOCK_MULTIPLE)
        small = size <= SMALL_BLOCK_BYTES
        pool = self._pools.get((stream, small))
        if pool is None:  # addresses of pools are far apart, so that growing segments never meet
            pool = self._pools[stream, small] = Pool(small=small, address=len(self._pools) << 50)
        block = pool.fitting(size) or (self._grown(pool, size) if self.expandable else self._segment(pool, size))
        rest = block.size - size
        if rest >= BLOCK_MULTIPLE and (small or self.expandable or rest > SMALL_BLOCK_BYTES):
            self._cut(block, size)
        block.free = False
        self.allocated_bytes += block.size
        return block

    def free(self, block: Block) -> None:
        """Frees a block and merges it with free neighbours."""
        self.allocated_bytes -= block.size
        pool = block.pool
        if (before := block.before) is not None and before.free:
            pool.take(before)
            block = self._joined(before, block)
        if (behind := block.behind) is not None and behind.free:
            pool.take(behind)
            block = self._joined(block, behind)
        pool.put(block)

    def _segment(self, pool: Pool, size: int) -> Block:
        length = SMALL_SEGMENT if pool.small else MEDIUM_SEGMENT if size < MEDIUM_BLOCK_BYTES else _rounded_up(size, SEGMENT_STEP)
        block = Block(pool, pool.end, length)
        pool.end += length
        self.reserved_bytes += length
        return block

    def _grown(self, pool: Pool, size: int) -> Block:
        """The tail of the pool's expandable segment, grown by the missing bytes."""
        tail = pool.tail
        free_bytes = tail.size if tail is not None and tail.free else 0
        length = _rounded_up(size - free_bytes, SMALL_SEGMENT if pool.small else MEDIUM_SEGMENT)
        self.reserved_bytes += length
        pool.end += length
        if tail is not None and tail.free:
            pool.take(tail)
            tail.size += length
            return tail
        block = Block(pool, pool.end - length, length)
        if tail is not None:
            tail.behind, block.before = block, tail
        pool.tail = block
        return block

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.pool, block.address + size, block.size - size)
        rest.before, rest.behind = block, block.behind
        if block.behind is not None:
            block.behind.before = rest
        block.behind, block.size = rest, size
        if block.pool.tail is block:
            block.pool.tail = rest
        block.pool.put(rest)

    @staticmethod
    def _joined(first: Block, second: Block) -> Block:
        first.size += second.size
        first.behind = second.behind
        if second.behind is not None:
            second.behind.before = first
        if first.pool.tail is second:
            first.pool.tail = first
        return first


def _rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


def reserved_bytes(timeline: Timeline, *, expandable: bool = False) -> int:
    """Peak memory that the allocator reserves in a run; ``timeline`` is one step of it, after the first.

    Replays the allocations before that step except the optimizer's states; then the step, with the states allocated at the begin
    of its update (also if parameters are updated in the backward pass, which makes them earlier), among blocks freed by
    activations; then the step again, until it reserves nothing more. Allocations are on the streams of the step. A freed block
    is free on its own stream at once, as with FSDP2, which waits for events and does not record streams; or after its delay.
    """
    run = _Run(timeline, expandable=expandable)
    run.begin()
    run.step()
    for _ in range(MAX_STEPS - 1):
        before = run.allocator.reserved_bytes
        run.step()
        if run.allocator.reserved_bytes == before:
            break
    return run.allocator.reserved_bytes


class _Run:
    """Replays steps on one allocator."""

    def __init__(self, timeline: Timeline, *, expandable: bool) -> None:
        self.allocator = Allocator(expandable=expandable)
        self._timeline = timeline
        self._held = _sizes(timeline)
        self._states = {number for number in self._held if timeline.births[number].part == "optimizer"}
        self._blocks: dict[int, Block] = {}
        self._bytes: dict[int, int] = {}
        self._waiting: dict[int, list[Block]] = {}

    def begin(self) -> None:
        self._restore(self._held.keys() - self._states)

    def step(self) -> None:
        """Replays the step from the state between steps; the optimizer's states may be missing until its update."""
        made = self._states <= self._bytes.keys()
        self._restore(self._held.keys() if made else self._held.keys() - self._states)
        streams, begin = self._timeline.streams, self._timeline.begin
        for index, (number, change, moment) in enumerate(self._timeline.events[begin:], begin):
            if not made and moment.phase == "optimizer":
                self._restore(self._bytes.keys() | self._states)
                made = True
            delay = self._timeline.delays.get(index, 0)
            self._resize(
                number, self._bytes.get(number, 0) + change, streams.get(index, COMPUTE_STREAM), index + delay if delay else 0
            )
            for block in self._waiting.pop(index, ()):
                self.allocator.free(block)
        for block in [block for blocks in self._waiting.values() for block in blocks]:
            self.allocator.free(block)
        self._waiting.clear()

    def _restore(self, numbers: Set[int]) -> None:
        """Frees all storages except ``numbers``, and allocates those of ``numbers`` that are missing."""
        for number in [number for number in self._bytes if number not in numbers]:
            self._resize(number, 0)
        for number, size in self._held.items():
            if number in numbers and number not in self._bytes:
                self._resize(number, size)

    def _resize(self, number: int, size: int, stream: int = COMPUTE_STREAM, until: int = 0) -> None:
        """Gives a storage another block; its old one is freed at once, or after the event ``until``."""
        old = self._blocks.pop(number, None)
        self._bytes.pop(number, None)
        if size:
            self._blocks[number], self._bytes[number] = self.allocator.allocate(size, stream), size
        if old is not None and until:
            self._waiting.setdefault(until, []).append(old)
        elif old is not None:
            self.allocator.free(old)


def _sizes(timeline: Timeline) -> dict[int, int]:
    """Bytes of each storage that existed before the step."""
    sizes: dict[int, int] = {}
    for number, change, _ in timeline.events[: timeline.begin]:
        sizes[number] = sizes.get(number, 0) + change
    return {number: size for number, size in sizes.items() if size}
