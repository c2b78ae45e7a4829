"""Columns: a table of candidates with one NumPy array per vocabulary name and one row per candidate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.settings import settings_of
from strategist.expr.vocabulary import CANDIDATE, SETTINGS, VOCABULARY

Array = NDArray[Any]

CANDIDATE_NAMES = tuple(name for name, entry in VOCABULARY.items() if entry.phase == CANDIDATE and not name.startswith("options."))
"""Names that a complete table of candidates has: everything that the price depends on."""

_DERIVED = tuple(name for name in CANDIDATE_NAMES if name.startswith("layout.") and name not in SETTINGS)


Source = tuple[Mapping[str, Array], Array]
"""Columns, and for each row of a table its index in these columns."""


class Gathered(Mapping[str, Array]):
    """Columns that are gathered lazily: the first read of a name indexes its source with the rows' indices."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self._made: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        made = self._made.get(name)
        if made is None:
            values, places = next((source for source in self.sources if name in source[0]), ({}, _NOWHERE))
            made = self._made[name] = values[name].take(places)  # twice as fast as indexing
        return made

    def row(self, index: int) -> dict[str, Any]:
        """Values of one row, without gathering columns."""
        return {name: values[name][places[index]] for values, places in self.sources for name in values}

    def __contains__(self, name: object) -> bool:
        return any(name in values for values, _ in self.sources)

    def __iter__(self) -> Iterator[str]:
        return (name for values, _ in self.sources for name in values)

    def __len__(self) -> int:
        return sum(len(values) for values, _ in self.sources)


_NOWHERE: Array = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Candidates by vocabulary name (``layout.tp``). Columns in ``categories`` hold codes: indices into the name's choices.

    Where rows form runs of consecutive rows with equal values of some names, ``runs`` has those names with one value per run, and
    ``run_rows`` the number of rows per run. Expressions on those names alone are evaluated once per run.
    """

    values: Mapping[str, Array]
    categories: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    runs: Mapping[str, Array] = field(default_factory=dict)
    run_rows: Array | None = None

    @cached_property
    def rows(self) -> int:
        """Number of candidates."""
        if isinstance(self.values, Gathered):
            return len(self.values.sources[0][1])
        return len(next(iter(self.values.values()), ()))

    @cached_property
    def names(self) -> frozenset[str]:
        """Vocabulary names of the table's columns."""
        return frozenset(self.values)

    @cached_property
    def run_names(self) -> frozenset[str]:
        """Names that are equal in each run."""
        return frozenset(self.runs)

    @cached_property
    def row_names(self) -> frozenset[str]:
        """All other names."""
        return self.names - self.run_names

    def code(self, name: str, value: KnobValue) -> KnobValue:
        """Code of a value in the column of that name; the value itself for columns without categories."""
        return self.categories[name].index(value) if name in self.categories else value

    def take(self, index: Array) -> "Columns":
        """Rows selected by index or by boolean mask."""
        return Columns(values=self._taken(_places(index)), categories=self.categories)

    def among(self, mask: Array) -> "Columns":
        """Rows selected by boolean mask; runs are kept."""
        values = self._taken(_places(mask))
        if self.run_rows is None:
            return Columns(values=values, categories=self.categories)
        left = np.bincount(np.repeat(np.arange(len(self.run_rows)), self.run_rows)[mask], minlength=len(self.run_rows))
        runs = Gathered([(self.runs, np.flatnonzero(left))])
        return Columns(values=values, categories=self.categories, runs=runs, run_rows=left[left > 0])

    def parts(self, most: int) -> Iterator[tuple[slice, "Columns"]]:
        """Consecutive parts of at most ``most`` rows, each with its slice of rows.

        Runs are not split: a longer run is a part of its own.
        """
        if self.rows <= most:
            yield slice(0, self.rows), self
            return
        lengths = np.ones(self.rows, dtype=np.int64) if self.run_rows is None else self.run_rows
        ends, first, begin = np.cumsum(lengths), 0, 0
        while first < len(ends):
            last = max(int(np.searchsorted(ends, begin + most, side="right")), first + 1)
            place = slice(begin, int(ends[last - 1]))
            values = self._taken(np.arange(place.start, place.stop))
            if self.run_rows is None:
                yield place, Columns(values=values, categories=self.categories)
            else:
                runs = Gathered([(self.runs, np.arange(first, last))])
                yield place, Columns(values=values, categories=self.categories, runs=runs, run_rows=self.run_rows[first:last])
            first, begin = last, place.stop

    def _taken(self, places: Array) -> Gathered:
        if isinstance(self.values, Gathered):
            return Gathered([(values, before.take(places)) for values, before in self.values.sources])
        return Gathered([(self.values, places)])

    def row(self, index: int) -> dict[str, Any]:
        """One candidate as plain Python values, with codes decoded."""
        columns = self.values
        found = columns.row(index) if isinstance(columns, Gathered) else {name: each[index] for name, each in columns.items()}
        row = {name: value.item() for name, value in found.items()}
        return row | {name: choices[row[name]] for name, choices in self.categories.items() if name in row}


def _places(index: Array) -> Array:
    return np.flatnonzero(index) if index.dtype == np.bool_ else index


def row_of(candidate: Candidate, accumulation: int) -> dict[str, Any]:
    """One candidate by vocabulary name, including names derived from its layout."""
    derived = {name: getattr(candidate.layout, name.partition(".")[2]) for name in _DERIVED}
    return {**settings_of(candidate), **derived, "knobs.accumulation": accumulation}


def table(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Table of candidates; columns with choices hold codes. The first row determines the names."""
    categories = {name: VOCABULARY[name].choices for name in rows[0] if VOCABULARY[name].choices}
    values = {}
    for name in rows[0]:
        choices = categories.get(name)
        values[name] = np.array([row[name] if choices is None else choices.index(row[name]) for row in rows])
    return Columns(values=values, categories=categories)
