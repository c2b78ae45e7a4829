"""Columns: a table of candidates, one NumPy array a name, one row a candidate."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.contract.knobs import KnobValue

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Candidates by vocabulary name (``layout.tp``). A name in ``categories`` holds codes: indices into its choices."""

    values: Mapping[str, Array]
    categories: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of candidates."""
        return len(next(iter(self.values.values()), ()))

    def take(self, index: Array) -> "Columns":
        """The rows that ``index`` names, by number or by a boolean mask."""
        return Columns(values={name: column[index] for name, column in self.values.items()}, categories=self.categories)

    def row(self, index: int) -> dict[str, Any]:
        """One candidate as plain Python values, codes replaced by what they stand for."""
        row = {name: column[index].item() for name, column in self.values.items()}
        return row | {name: choices[row[name]] for name, choices in self.categories.items() if name in row}

    def with_values(self, **values: Array) -> "Columns":
        """This table with further or replaced columns."""
        return self.merged(values)

    def merged(self, values: Mapping[str, Array], categories: Mapping[str, tuple[KnobValue, ...]] | None = None) -> "Columns":
        """This table with further or replaced columns, and the choices of those that hold codes."""
        return Columns(values={**self.values, **values}, categories={**self.categories, **(categories or {})})


def column_of(rows: Mapping[str, Any], choices: Mapping[str, tuple[KnobValue, ...]]) -> Columns:
    """A table of one row; names in ``choices`` are coded."""
    known = {name: choices[name] for name in rows if name in choices}
    values = {name: np.array([choices[name].index(value) if name in known else value]) for name, value in rows.items()}
    return Columns(values=values, categories=known)
