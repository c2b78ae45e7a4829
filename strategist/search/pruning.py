"""Pruning: families of candidates that cannot fit or be fast enough, by lower bounds, are dropped before they are enumerated."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from strategist.contract.knobs import CHOICES, KnobValue
from strategist.contract.settings import SETTING_CHOICES, full_name
from strategist.cost.lower_bounds import CHEAPEST_KNOBS, FAMILY_KNOBS, LowerBounds, TimeBounds, combined
from strategist.expr.columns import Array, Columns, joined_to, sources_of
from strategist.frozen import frozen
from strategist.rules.policy_evaluation import PART_ROWS
from strategist.search.candidate_tables import CandidateSet, KnobRows

_OFFLOAD = full_name("offload")


@frozen
class Limits:
    """Limits of a candidate: seconds of a step, and device memory, which must hold ``memory_margin`` times the predicted peak."""

    step_seconds: float
    memory_margin: float

    def within_limits(self, bounds: LowerBounds) -> Array:
        """Mask of families x offload modes: whether the lower bounds keep to the limits."""
        fast = bounds.time.step_seconds <= self.step_seconds
        fits = [bounds.memory_bytes[str(offload)] * self.memory_margin <= bounds.room_bytes for offload in CHOICES["offload"]]
        return np.stack([fast & fits_offloaded for fits_offloaded in fits], axis=1)


@frozen
class Families:
    """Families of candidates: those of a family share a lower bound.

    first: number of each block's first family.
    family: by row of the table of knobs, the number of its family within a block.
    could: families x offload modes: whether some candidate could keep to the limits.
    time: lower bounds of time of all families.
    """

    candidates: CandidateSet
    first: Array
    family: Array
    could: Array
    time: TimeBounds

    @property
    def possible(self) -> Iterator[Columns]:
        """The candidates that could keep to the limits, as tables of bounded size."""
        parts = self.candidates.tables(PART_ROWS, self._remaining_blocks)
        return joined_to((part.among(self._among(part)) for part in parts), PART_ROWS)

    def time_of(self, columns: Columns) -> TimeBounds:
        """The bounds of time of the families of a table's candidates."""
        (_, block_indices), (_, knob_indices) = sources_of(columns)
        return self.time.take(self.first[block_indices] + self.family[knob_indices])

    def _among(self, columns: Columns) -> Array:
        """Mask of the candidates that could keep to the limits."""
        (_, block_indices), (_, knob_indices) = sources_of(columns)
        return np.take(self.could, self._first_verdict[block_indices] + self._verdict[knob_indices])

    @cached_property
    def _first_verdict(self) -> Array:
        """The place of each block's first verdict among all of ``could``."""
        return np.asarray(self.first * self.could.shape[1])

    @cached_property
    def _verdict(self) -> Array:
        """By row of the table of knobs, the place of its verdict among those of a block."""
        return np.asarray(self.family * self.could.shape[1] + self.candidates.knobs.values[_OFFLOAD])

    @cached_property
    def _remaining_blocks(self) -> Array:
        """The blocks of which some family could."""
        possible_counts = np.append(0, np.cumsum(self.could.any(axis=1)))
        ends = np.append(self.first, len(self.could))
        return np.flatnonzero(np.diff(possible_counts[ends]))


def families(candidates: CandidateSet, lower_bounds: Callable[[Columns], LowerBounds], limits: Limits) -> Families:
    """The families of a set of candidates, with the verdicts of their lower bounds."""
    family, samples = _families(candidates.knobs, candidates.knob_rows)
    sampled = replace(candidates, knobs=relaxed(candidates.knobs), knob_rows=samples)
    verdicts = [(limits.within_limits(bounds), bounds.time) for bounds in map(lower_bounds, sampled.tables(PART_ROWS))]
    rows = sampled.lengths[candidates.blocks.grid]
    return Families(
        candidates=candidates,
        first=np.cumsum(rows) - rows,
        family=family,
        could=np.concatenate([could for could, _ in verdicts]),
        time=combined(np.concatenate, [time for _, time in verdicts]),
    )


def _families(knobs: Columns, knob_rows: KnobRows) -> tuple[Array, KnobRows]:
    """The family number of each combination in its grid; and the first combination of each family, by grid.

    Families are numbered by the values that they share. These are few, so that marking them is faster than sorting.
    """
    kinds, key = 1, np.zeros(knobs.rows, dtype=np.int64)
    for name in FAMILY_KNOBS:
        column = knobs.values[full_name(name)]
        smallest, largest = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        kinds, key = kinds * (largest - smallest + 1), key * (largest - smallest + 1) + column - smallest
    family, samples = np.zeros(knobs.rows, dtype=np.int64), []
    first = np.empty(kinds, dtype=np.int64)
    for grid_rows in knob_rows:
        row_keys, first[:] = key[grid_rows], -1
        first[row_keys[::-1]] = grid_rows[::-1]  # of equal ones the last that is written stays
        present = first >= 0
        family[grid_rows] = (np.cumsum(present) - 1)[row_keys]
        samples.append(first[present])
    return family, samples


def relaxed(knobs: Columns) -> Columns:
    """The table of knobs with every knob outside of ``FAMILY_KNOBS`` replaced by its cheapest value."""
    return Columns(values=_Relaxed(knobs.values), categories=knobs.categories)


class _Relaxed(Mapping[str, Array]):
    """Columns of which some are constant."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values = values
        self._cheapest = {full_name(name): _code(name, value) for name, value in CHEAPEST_KNOBS.items()}

    def __getitem__(self, name: str) -> Array:
        column = self._values[name]
        return np.broadcast_to(np.array(self._cheapest[name]), column.shape) if name in self._cheapest else column

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _code(name: str, value: KnobValue) -> int:
    choices = SETTING_CHOICES.get(name)
    return int(value) if choices is None else choices.index(value)
