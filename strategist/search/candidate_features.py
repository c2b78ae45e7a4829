"""Candidate features: candidates of one or several studies as columns, with the cost model's predictions."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.contract.cluster import Cluster
from strategist.contract.estimate import TimeParts
from strategist.contract.goals import Goals
from strategist.contract.knobs import KnobValue
from strategist.contract.model import ModelShape
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.contract.workload import Workload
from strategist.cost.layer_flops import model_flops_per_token
from strategist.frozen import frozen
from strategist.search.settings import Settings

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

TIME_PARTS = tuple(part.name for part in fields(TimeParts))


@frozen
class Context:
    """Context of a study: its device, and log2 of its number of devices, its FLOPs per token and its tokens per step."""

    device: str = ""
    doublings: tuple[float, ...] = ()

    def squared_distance(self, other: "Context") -> float:
        """Squared distance to another context; a different device counts as one doubling."""
        squares = [(value - other_value) ** 2 for value, other_value in zip(self.doublings, other.doublings, strict=True)]
        return sum(squares) + (self.device != other.device)


def context(model: ModelShape, cluster: Cluster, workload: Workload) -> Context:
    """The context of a study of this model, cluster and workload."""
    sizes = cluster.devices, model_flops_per_token(model, workload), workload.tokens_per_step
    return Context(device=cluster.device.name, doublings=tuple(map(log2, sizes)))


@frozen
class CandidateFeatures:
    """Features of candidates, one element per candidate.

    settings: the candidate's settings.
    predicted: predicted value of the request's objective.
    memory_ratio: predicted peak memory over the memory that a plan may use.
    shares: share of each part in the predicted step: candidates x parts.
    other_objectives: predicted values of further objectives: candidates x objectives; None if there are none.
    step_ratio: predicted step over the longest step allowed; None if steps are not constrained.
    contexts: the context of each study.
    sizes: number of candidates of each study; empty for a single study.
    """

    settings: tuple[Settings, ...]
    predicted: Floats
    memory_ratio: Floats
    shares: Floats
    other_objectives: Floats | None = None
    step_ratio: Floats | None = None
    contexts: tuple[Context, ...] = (Context(),)
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.settings)

    @cached_property
    def study(self) -> Counts:
        """Index of each candidate's study."""
        return np.repeat(np.arange(len(self.contexts)), self.sizes or len(self))

    @cached_property
    def doublings(self) -> Floats:
        """log2 of the numeric settings that vary: candidates x settings."""
        sizes = [np.log2(self.values[name])[self.codes[name]] for name in self.varying_settings if _numeric(self.values[name])]
        return _stacked(sizes, len(self))

    @cached_property
    def choices(self) -> Floats:
        """The other settings that vary, as codes that can only be compared for equality: candidates x settings."""
        return _stacked([self.codes[name] for name in self.varying_settings if not _numeric(self.values[name])], len(self))

    @cached_property
    def distinct_sizes(self) -> tuple[Floats, Counts]:
        """The rows of ``doublings`` that differ, far fewer than there are candidates, and the number of each candidate's."""
        return _distinct(self.doublings)

    @cached_property
    def distinct_choices(self) -> tuple[Floats, Counts]:
        """The rows of ``choices`` that differ, and the number of each candidate's."""
        return _distinct(self.choices)

    @cached_property
    def columns(self) -> dict[str, tuple[KnobValue, ...]]:
        """Values of each setting, one per candidate."""
        return {
            name: tuple(candidate_settings[name] for candidate_settings in self.settings)
            for name in (self.settings[0] if self.settings else ())
        }

    @cached_property
    def values(self) -> dict[str, tuple[KnobValue, ...]]:
        """Distinct values of each setting, in a fixed order."""
        order = {name: sorted(set(found), key=lambda value: (str(type(value)), value)) for name, found in self.columns.items()}
        return {name: tuple(found) for name, found in order.items()}

    @cached_property
    def varying_settings(self) -> tuple[str, ...]:
        """Settings that differ between candidates."""
        return tuple(name for name, found in self.values.items() if len(found) > 1)

    @cached_property
    def candidate_index(self) -> dict[tuple[KnobValue, ...], int]:
        """Row number of each candidate, by its values of the ``questions``."""
        varying_values = (
            zip(*(self.columns[name] for name in self.varying_settings), strict=True) if self.varying_settings else [()] * len(self)
        )
        return {values: index for index, values in enumerate(varying_values)}

    @cached_property
    def codes(self) -> dict[str, Counts]:
        """Values of the ``questions`` as codes: the position of each candidate's value among those that occur."""
        code_of = {name: {value: code for code, value in enumerate(self.values[name])} for name in self.varying_settings}
        return {
            name: np.fromiter(map(code_by_value.__getitem__, self.columns[name]), np.int64, len(self))
            for name, code_by_value in code_of.items()
        }


def plan_features(plans: Sequence[Plan], goals: Goals) -> CandidateFeatures:
    """Features of priced plans of one study."""
    predicted = np.array([goals.predicted(plan) for plan in plans], dtype=np.float64).reshape(len(plans), len(goals.objectives))
    seconds = np.array([[getattr(plan.estimate.time, name) for name in TIME_PARTS] for plan in plans]).reshape(-1, len(TIME_PARTS))
    step = [max(goals.predicted_ratios(plan).values(), default=None) for plan in plans]
    return CandidateFeatures(
        settings=tuple(settings_of(plan.candidate) for plan in plans),
        predicted=predicted[:, 0],
        other_objectives=predicted[:, 1:] if goals.several else None,
        memory_ratio=np.array([plan.estimate.peak_memory_bytes / goals.capacity_bytes(plan) for plan in plans], dtype=np.float64),
        shares=seconds / np.maximum(seconds.sum(axis=1, keepdims=True), 1e-300),
        step_ratio=None if None in step else np.array(step, dtype=np.float64),
        contexts=tuple(context(plan.model, plan.cluster, plan.workload) for plan in plans[:1]) or (Context(),),
    )


def concatenate(studies: Sequence[CandidateFeatures]) -> CandidateFeatures:
    """Features of several studies, one after the other. Settings and parts of a step mean the same in all of them."""
    return CandidateFeatures(
        settings=tuple(candidate_settings for features in studies for candidate_settings in features.settings),
        predicted=np.concatenate([features.predicted for features in studies]),
        memory_ratio=np.concatenate([features.memory_ratio for features in studies]),
        shares=np.concatenate([features.shares for features in studies]),
        other_objectives=_joined([features.other_objectives for features in studies]),
        step_ratio=_joined([features.step_ratio for features in studies]),
        contexts=tuple(features.contexts[0] for features in studies),
        sizes=tuple(map(len, studies)),
    )


def _joined(columns: Sequence[Floats | None]) -> Floats | None:
    """The columns concatenated; None if a study lacks one."""
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if len(present) == len(columns) else None


def _numeric(values: Sequence[KnobValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)


def _distinct(rows: Floats) -> tuple[Floats, Counts]:
    """The rows that differ, and the number among them of each row."""
    key = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        values, code = np.unique(column, return_inverse=True)
        if len(key) and int(key.max()) * len(values) >= 2**62:
            key = np.unique(key, return_inverse=True)[1]
        key = key * len(values) + code
    _, first, row_index = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], row_index


def _stacked(columns: Sequence[NDArray[Any]], rows: int) -> Floats:
    return np.stack(columns, axis=1).astype(np.float64) if columns else np.zeros((rows, 0))
