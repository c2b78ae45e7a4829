"""Columns: a table of candidates, one NumPy array a name, one row a candidate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.settings import settings_of
from strategist.expr.vocabulary import CANDIDATE, SETTINGS, VOCABULARY

Array = NDArray[Any]

CANDIDATE_NAMES = tuple(name for name, entry in VOCABULARY.items() if entry.phase == CANDIDATE and not name.startswith("options."))
"""What a complete table of candidates holds: all that a price depends on."""

_DERIVED = tuple(name for name in CANDIDATE_NAMES if name.startswith("layout.") and name not in SETTINGS)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Candidates by vocabulary name (``layout.tp``). A name in ``categories`` holds codes: indices into its choices.

    Where rows come in runs, ``runs`` are the names that are equal in each run, with one value a run, and ``run_rows`` the runs'
    lengths: what depends on those names alone is evaluated once a run.
    """

    values: Mapping[str, Array]
    categories: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    runs: Mapping[str, Array] = field(default_factory=dict)
    run_rows: Array | None = None

    @property
    def rows(self) -> int:
        """Number of candidates."""
        return len(next(iter(self.values.values()), ()))

    def code(self, name: str, value: KnobValue) -> KnobValue:
        """What stands in the column of that name for a value."""
        return self.categories[name].index(value) if name in self.categories else value

    def take(self, index: Array) -> "Columns":
        """The rows that ``index`` names, by number or by a boolean mask."""
        return Columns(values={name: column[index] for name, column in self.values.items()}, categories=self.categories)

    def row(self, index: int) -> dict[str, Any]:
        """One candidate as plain Python values, codes replaced by what they stand for."""
        row = {name: column[index].item() for name, column in self.values.items()}
        return row | {name: choices[row[name]] for name, choices in self.categories.items() if name in row}


def row_of(candidate: Candidate, accumulation: int) -> dict[str, Any]:
    """One candidate by vocabulary name, with what follows from its layout."""
    derived = {name: getattr(candidate.layout, name.partition(".")[2]) for name in _DERIVED}
    return {**settings_of(candidate), **derived, "knobs.accumulation": accumulation}


def table(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Candidates as a table; names with choices are coded. All rows have the names of the first."""
    categories = {name: VOCABULARY[name].choices for name in rows[0] if VOCABULARY[name].choices}
    values = {}
    for name in rows[0]:
        choices = categories.get(name)
        values[name] = np.array([row[name] if choices is None else choices.index(row[name]) for row in rows])
    return Columns(values=values, categories=categories)
