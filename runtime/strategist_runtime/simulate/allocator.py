"""What CUDA's caching allocator reserves for the tensors of a run: its rules, and a run's allocations replayed on them.

Rules: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp of torch 2.13, as it is without settings but
``expandable_segments``. What another stream reads when it is freed serves again as late as it may (``readers``). Not modelled: what
is not allocated through it (NCCL's buffers, CUDA's context), workspaces of cuBLAS, temporaries of CUDA's kernels that those of the
CPU have not, and that cached segments are given back when a device is full.
"""

from bisect import bisect_left, insort
from collections.abc import Set

from strategist_runtime.simulate.timeline import Timeline

MIB = 2**20
LEAST = 512
"""Of a block: every size is rounded up to a multiple of it."""

SMALL = MIB
"""Blocks up to this size come from segments of SMALL_SEGMENT."""

SMALL_SEGMENT, MEDIUM_SEGMENT, SEGMENT_STEP = 2 * MIB, 20 * MIB, 2 * MIB
MEDIUM = 10 * MIB
"""Blocks below this size come from segments of MEDIUM_SEGMENT, larger ones from segments of their own, rounded to SEGMENT_STEP."""

STEPS = 6
"""Of a run, at most: nearly always the second already reserves nothing more."""

COMPUTE = 0
"""The stream of every allocation of which nothing else is said."""


class Block:
    """A piece of a segment, between its neighbours there."""

    __slots__ = ("address", "before", "behind", "free", "pool", "size")

    def __init__(self, pool: "Pool", address: int, size: int) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.free = True
        self.before: Block | None = None
        self.behind: Block | None = None


class Pool:
    """The blocks of one stream that are small, or that are large. ``tail``: the last block where segments grow."""

    def __init__(self, *, small: bool, address: int) -> None:
        self.small, self.end = small, address
        self.tail: Block | None = None
        self._free: list[tuple[int, int, Block]] = []

    def fitting(self, size: int) -> Block | None:
        """Takes the smallest free block that is large enough, of equal ones the first; where a segment grows, its end only where
        nothing else fits, for that could be of any size."""
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
    """Memory of one device, cut into blocks."""

    def __init__(self, *, expandable: bool = False) -> None:
        self.expandable = expandable
        self.allocated_bytes = self.reserved_bytes = 0
        self._pools: dict[tuple[int, bool], Pool] = {}

    def allocate(self, size: int, stream: int = COMPUTE) -> Block:
        """A block of at least ``size`` bytes, which is not 0."""
        size = _up(size, LEAST)
        small = size <= SMALL
        pool = self._pools.get((stream, small))
        if pool is None:  # pools lie far apart: growing segments never meet
            pool = self._pools[stream, small] = Pool(small=small, address=len(self._pools) << 50)
        block = pool.fitting(size) or (self._grown(pool, size) if self.expandable else self._segment(pool, size))
        rest = block.size - size
        if rest >= LEAST and (small or self.expandable or rest > SMALL):
            self._cut(block, size)
        block.free = False
        self.allocated_bytes += block.size
        return block

    def free(self, block: Block) -> None:
        """Gives a block back, which joins free neighbours."""
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
        length = SMALL_SEGMENT if pool.small else MEDIUM_SEGMENT if size < MEDIUM else _up(size, SEGMENT_STEP)
        block = Block(pool, pool.end, length)
        pool.end += length
        self.reserved_bytes += length
        return block

    def _grown(self, pool: Pool, size: int) -> Block:
        """The end of the pool's one segment, which grows by as much as is missing there."""
        tail = pool.tail
        free_bytes = tail.size if tail is not None and tail.free else 0
        length = _up(size - free_bytes, SMALL_SEGMENT if pool.small else MEDIUM_SEGMENT)
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


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def reserved_bytes(timeline: Timeline, *, expandable: bool = False) -> int:
    """The most that the allocator reserves in a run of which ``timeline`` shows one step, after the first.

    Replayed are what was there before that step but the optimizer's states; the step, in which they are made as its update begins
    (also where parameters are updated in the backward pass, which makes them earlier), among blocks that activations left; and the
    step again, until it reserves nothing more. Streams are those in which the step allocated; a block that is freed is free on its
    own stream at once, as FSDP2 has it, which waits for events and records no streams, or after its delay.
    """
    run = _Run(timeline, expandable=expandable)
    run.begin()
    run.step()
    for _ in range(STEPS - 1):
        before = run.allocator.reserved_bytes
        run.step()
        if run.allocator.reserved_bytes == before:
            break
    return run.allocator.reserved_bytes


class _Run:
    """Steps on one allocator, one after the other."""

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
        """Runs the step from what lies between steps; the states may be missing until its update."""
        made = self._states <= self._bytes.keys()
        self._restore(self._held.keys() if made else self._held.keys() - self._states)
        streams, begin = self._timeline.streams, self._timeline.begin
        for index, (number, change, moment) in enumerate(self._timeline.events[begin:], begin):
            if not made and moment.phase == "optimizer":
                self._restore(self._bytes.keys() | self._states)
                made = True
            delay = self._timeline.delays.get(index, 0)
            self._resize(number, self._bytes.get(number, 0) + change, streams.get(index, COMPUTE), index + delay if delay else 0)
            for block in self._waiting.pop(index, ()):
                self.allocator.free(block)
        for block in [block for blocks in self._waiting.values() for block in blocks]:
            self.allocator.free(block)
        self._waiting.clear()

    def _restore(self, numbers: Set[int]) -> None:
        """Frees what is not among them, and makes those that are missing."""
        for number in [number for number in self._bytes if number not in numbers]:
            self._resize(number, 0)
        for number, size in self._held.items():
            if number in numbers and number not in self._bytes:
                self._resize(number, size)

    def _resize(self, number: int, size: int, stream: int = COMPUTE, until: int = 0) -> None:
        """Gives a storage another block; its old one is free at once, or after the event ``until``."""
        old = self._blocks.pop(number, None)
        self._bytes.pop(number, None)
        if size:
            self._blocks[number], self._bytes[number] = self.allocator.allocate(size, stream), size
        if old is not None and until:
            self._waiting.setdefault(until, []).append(old)
        elif old is not None:
            self.allocator.free(old)


def _sizes(timeline: Timeline) -> dict[int, int]:
    """Bytes of each storage that was there before the step."""
    sizes: dict[int, int] = {}
    for number, change, _ in timeline.events[: timeline.begin]:
        sizes[number] = sizes.get(number, 0) + change
    return {number: size for number, size in sizes.items() if size}
