"""Pruning: candidates whose family cannot fit or be fast enough, by lower bounds, are left out before they are listed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from strategist.contract.knobs import CHOICES, KnobValue
from strategist.contract.settings import SETTING_CHOICES, full_name
from strategist.cost.lower_bounds import FAMILY, LEAST_OF_OTHERS, LowerBounds
from strategist.expr.columns import Array, Columns
from strategist.rules.policy_evaluation import PART_ROWS
from strategist.search.candidate_tables import Left, rows_at, table_of
from strategist.search.space import Block

_OFFLOAD = full_name("offload")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a candidate must keep to: seconds of a step, and room on a device for ``memory_margin`` times what it takes."""

    step_seconds: float
    memory_margin: float

    def met_by(self, found: LowerBounds) -> Array:
        """By offload, the families some of whose candidates could keep to it."""
        fast = found.step_seconds <= self.step_seconds
        fits = [found.memory_bytes[str(how)] * self.memory_margin <= found.room_bytes for how in CHOICES["offload"]]
        return np.stack([fast & each for each in fits], axis=1)


@dataclass(frozen=True, kw_only=True)
class Families:
    """The families of the candidates of some blocks.

    first: the number of each block's first family.
    family: by the place of a combination of knobs, the number of its family in each block.
    could: by family and offload, whether some of its candidates could keep to the limits.
    """

    blocks: Sequence[Block]
    knobs: Columns
    left: Left
    first: Array
    family: Array
    could: Array

    def among(self, of: Array, places: Array) -> Array:
        """Of candidates by number of block and place of the combination of knobs, those that could."""
        return np.asarray(self.could[self.first[of] + self.family[places], self.knobs.values[_OFFLOAD][places]])

    @property
    def candidates(self) -> Columns:
        """All candidates that could."""
        ends = np.append(self.first, len(self.could))[1:]
        pieces = []
        for number, (block, begin, end) in enumerate(zip(self.blocks, self.first.tolist(), ends.tolist(), strict=True)):
            if self.could[begin:end].any():
                places = self.left[id(block.grid)]
                kept = places[self.among(np.array([number]), places)]
                pieces.append(np.stack([np.full(len(kept), number), kept]))
        of, places = np.concatenate([np.zeros((2, 0), dtype=np.int64), *pieces], axis=1)
        return rows_at(self.blocks, self.knobs, of, places)


def families(
    blocks: Sequence[Block], knobs: Columns, left: Left, lower_bounds: Callable[[Columns], LowerBounds], limits: Limits
) -> Families:
    """The families of the blocks with the combinations of knobs that are ``left``, some for each block."""
    family, samples = np.zeros(knobs.rows, dtype=np.int64), {}
    for grid, places in left.items():
        if len(places):
            samples[grid], family[places] = _families(knobs, places)
    table = table_of(blocks, relaxed(knobs), samples)
    parts = (limits.met_by(lower_bounds(part)) for _, part in table.parts(PART_ROWS)) if table.rows else ()
    rows = [0, *(len(samples[id(block.grid)]) for block in blocks)]
    return Families(
        blocks=blocks,
        knobs=knobs,
        left=left,
        first=np.cumsum(rows)[:-1],
        family=family,
        could=np.concatenate([np.zeros((0, len(CHOICES["offload"])), dtype=np.bool_), *parts]),
    )


def _families(knobs: Columns, places: Array) -> tuple[Array, Array]:
    """One of the combinations at these places for each family, and the number of each one's family."""
    key = np.zeros(len(places), dtype=np.int64)
    for name in FAMILY:
        column = knobs.values[full_name(name)]
        key = key * (int(column.max()) + 1) + column[places]
    _, first, family = np.unique(key, return_index=True, return_inverse=True)
    return places[first], family


def relaxed(knobs: Columns) -> Columns:
    """The combinations with the knobs that families do not share at their least."""
    return Columns(values=_Relaxed(knobs.values), categories=knobs.categories)


class _Relaxed(Mapping[str, Array]):
    """Columns of which some hold one value."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values = values
        self._least = {full_name(name): _code(name, value) for name, value in LEAST_OF_OTHERS.items()}

    def __getitem__(self, name: str) -> Array:
        column = self._values[name]
        return np.broadcast_to(np.array(self._least[name]), column.shape) if name in self._least else column

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _code(name: str, value: KnobValue) -> int:
    choices = SETTING_CHOICES.get(name)
    return int(value) if choices is None else choices.index(value)
