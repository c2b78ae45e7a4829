"""Prospects: the candidates of a study as columns, with what the cost model says of each."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from strategist.contract.estimate import TimeParts
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.search.settings import Settings, predicted

Floats = NDArray[np.float64]

TIME_PARTS = tuple(part.name for part in fields(TimeParts))


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """One element a candidate. ``predicted`` is what the objective minimises, ``memory_ratio`` the predicted share of the device's
    memory, ``shares`` that of each part in the predicted step: an array of candidates x parts."""

    settings: tuple[Settings, ...]
    predicted: Floats
    memory_ratio: Floats
    shares: Floats

    def __len__(self) -> int:
        return len(self.settings)

    @cached_property
    def doublings(self) -> Floats:
        """Settings that are sizes and not alike in all candidates, as powers of two: candidates x settings."""
        return _stacked([np.log2(values) for values in self._varying if _sizes(values)], len(self))

    @cached_property
    def choices(self) -> Floats:
        """All others that are not alike, as numbers that say no more than which are equal: candidates x settings."""
        return _stacked([_coded(values) for values in self._varying if not _sizes(values)], len(self))

    @cached_property
    def columns(self) -> dict[str, tuple[KnobValue, ...]]:
        """The values of each setting, one a candidate."""
        return {name: tuple(own[name] for own in self.settings) for name in (self.settings[0] if self.settings else ())}

    @cached_property
    def values(self) -> dict[str, tuple[KnobValue, ...]]:
        """Those that occur, in a fixed order."""
        order = {name: sorted(set(found), key=lambda value: (str(type(value)), value)) for name, found in self.columns.items()}
        return {name: tuple(found) for name, found in order.items()}

    @property
    def _varying(self) -> list[tuple[KnobValue, ...]]:
        return [column for name, column in self.columns.items() if len(self.values[name]) > 1]


def prospects(plans: Sequence[Plan], objective: str) -> Prospects:
    """Those of plans."""
    seconds = np.array([[getattr(plan.estimate.time, name) for name in TIME_PARTS] for plan in plans]).reshape(-1, len(TIME_PARTS))
    estimates = [plan.estimate for plan in plans]
    return Prospects(
        settings=tuple(settings_of(plan.candidate) for plan in plans),
        predicted=np.array([predicted(plan, objective) for plan in plans], dtype=np.float64),
        memory_ratio=np.array([found.peak_memory_bytes / found.capacity_bytes for found in estimates], dtype=np.float64),
        shares=seconds / np.maximum(seconds.sum(axis=1, keepdims=True), 1e-300),
    )


def _sizes(values: Sequence[KnobValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)


def _coded(values: Sequence[KnobValue]) -> Floats:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], dtype=np.float64)


def _stacked(columns: Sequence[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
