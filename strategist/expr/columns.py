"""Columns: a table of candidates with one NumPy array per vocabulary name and one row per candidate."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.settings import settings_of
from strategist.expr.vocabulary import CANDIDATE, SETTINGS, VOCABULARY
from strategist.frozen import frozen

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


@frozen
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
        """Names of columns with one value per run of rows."""
        return frozenset(self.runs)

    @cached_property
    def row_names(self) -> frozenset[str]:
        """Names of columns that vary within a run."""
        return self.names - self.run_names

    def code(self, name: str, value: KnobValue) -> KnobValue:
        """Code of a value in the column of that name; the value itself for columns without categories."""
        return self.categories[name].index(value) if name in self.categories else value

    def take(self, index: Array) -> "Columns":
        """Rows selected by index or by boolean mask."""
        return Columns(values=_gathered(self.values, _places(index)), categories=self.categories)

    def among(self, mask: Array) -> "Columns":
        """Rows selected by boolean mask; runs are kept."""
        values = _gathered(self.values, _places(mask))
        if self.run_rows is None:
            return Columns(values=values, categories=self.categories)
        left = np.bincount(np.repeat(np.arange(len(self.run_rows)), self.run_rows)[mask], minlength=len(self.run_rows))
        runs = _gathered(self.runs, np.flatnonzero(left))
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
            values = _gathered(self.values, np.arange(place.start, place.stop))
            if self.run_rows is None:
                yield place, Columns(values=values, categories=self.categories)
            else:
                runs = _gathered(self.runs, np.arange(first, last))
                yield place, Columns(values=values, categories=self.categories, runs=runs, run_rows=self.run_rows[first:last])
            first, begin = last, place.stop

    def row(self, index: int) -> dict[str, Any]:
        """One candidate as plain Python values, with codes decoded."""
        columns = self.values
        found = columns.row(index) if isinstance(columns, Gathered) else {name: each[index] for name, each in columns.items()}
        row = {name: value.item() for name, value in found.items()}
        return row | {name: choices[row[name]] for name, choices in self.categories.items() if name in row}


def joined(parts: Sequence[Columns]) -> Columns:
    """The rows of several tables, one table after the other. All are gathered from the same sources."""
    if len(parts) == 1:
        return parts[0]
    values, categories = _joined([part.values for part in parts]), parts[0].categories
    lengths = [part.run_rows for part in parts if part.run_rows is not None]
    if len(lengths) < len(parts):
        return Columns(values=values, categories=categories)
    runs = _joined([part.runs for part in parts])
    return Columns(values=values, categories=categories, runs=runs, run_rows=np.concatenate(lengths))


def joined_to(parts: Iterable[Columns], min_rows: int) -> Iterator[Columns]:
    """The rows of consecutive tables as fewer tables, each but the last with at least ``min_rows``."""
    waiting, rows = [], 0
    for part in parts:
        waiting.append(part)
        rows += part.rows
        if rows >= min_rows:
            yield joined(waiting)
            waiting, rows = [], 0
    if waiting:
        yield joined(waiting)


def sources_of(columns: Columns) -> Sequence[Source]:
    """The sources of a table whose columns are gathered."""
    return columns.values.sources if isinstance(columns.values, Gathered) else ()


def _joined(parts: Sequence[Mapping[str, Array]]) -> Gathered:
    sources = [part.sources for part in parts if isinstance(part, Gathered)]
    return Gathered([(same[0][0], np.concatenate([places for _, places in same])) for same in zip(*sources, strict=True)])


def _gathered(values: Mapping[str, Array], places: Array) -> Gathered:
    """Some rows of columns, gathered from where these are gathered from."""
    if isinstance(values, Gathered):
        return Gathered([(source, before.take(places)) for source, before in values.sources])
    return Gathered([(values, places)])


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
