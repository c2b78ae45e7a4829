"""Candidate features: the candidates of a study as columns, with the cost model's predictions for each."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import log2

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
from strategist.search.settings import Settings

Floats = NDArray[np.float64]

TIME_PARTS = tuple(part.name for part in fields(TimeParts))


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a study is of: its device, and as powers of two its devices, the FLOPs of a token, and the tokens of a step."""

    device: str = ""
    doublings: tuple[float, ...] = ()

    def squared_distance(self, other: "Context") -> float:
        """The square of the distance to another one: a device that differs counts as one doubling."""
        squares = [(own - theirs) ** 2 for own, theirs in zip(self.doublings, other.doublings, strict=True)]
        return sum(squares) + (self.device != other.device)


def context(model: ModelShape, cluster: Cluster, workload: Workload) -> Context:
    """Of a study of this model."""
    sizes = cluster.devices, model_flops_per_token(model, workload), workload.tokens_per_step
    return Context(device=cluster.device.name, doublings=tuple(map(log2, sizes)))


@dataclass(frozen=True, kw_only=True)
class CandidateFeatures:
    """One element a candidate. ``predicted`` is what the objective minimises, ``memory_ratio`` the predicted share of the memory
    that a plan may take, ``shares`` that of each part in the predicted step: an array of candidates x parts. ``beside`` is what
    further objectives minimise, candidates x objectives, None without any; ``step_ratio`` is the predicted share of the longest
    step that is allowed, None where any is. ``contexts`` say what each study is of, and ``sizes`` how many candidates are of which,
    where there are several."""

    settings: tuple[Settings, ...]
    predicted: Floats
    memory_ratio: Floats
    shares: Floats
    beside: Floats | None = None
    step_ratio: Floats | None = None
    contexts: tuple[Context, ...] = (Context(),)
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.settings)

    @cached_property
    def study(self) -> NDArray[np.int64]:
        """The number of each candidate's study."""
        return np.repeat(np.arange(len(self.contexts)), self.sizes or len(self))

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


def plan_features(plans: Sequence[Plan], goals: Goals) -> CandidateFeatures:
    """Those of plans."""
    predicted = np.array([goals.predicted(plan) for plan in plans], dtype=np.float64).reshape(len(plans), len(goals.objectives))
    seconds = np.array([[getattr(plan.estimate.time, name) for name in TIME_PARTS] for plan in plans]).reshape(-1, len(TIME_PARTS))
    step = [max(goals.predicted_ratios(plan).values(), default=None) for plan in plans]
    return CandidateFeatures(
        settings=tuple(settings_of(plan.candidate) for plan in plans),
        predicted=predicted[:, 0],
        beside=predicted[:, 1:] if goals.several else None,
        memory_ratio=np.array([plan.estimate.peak_memory_bytes / goals.capacity_bytes(plan) for plan in plans], dtype=np.float64),
        shares=seconds / np.maximum(seconds.sum(axis=1, keepdims=True), 1e-300),
        step_ratio=None if None in step else np.array(step, dtype=np.float64),
        contexts=tuple(context(plan.model, plan.cluster, plan.workload) for plan in plans[:1]) or (Context(),),
    )


def concatenate(studies: Sequence[CandidateFeatures]) -> CandidateFeatures:
    """Those of several studies, one study after the other. Settings and parts of a step mean the same in all of them."""
    return CandidateFeatures(
        settings=tuple(own for each in studies for own in each.settings),
        predicted=np.concatenate([each.predicted for each in studies]),
        memory_ratio=np.concatenate([each.memory_ratio for each in studies]),
        shares=np.concatenate([each.shares for each in studies]),
        beside=_joined([each.beside for each in studies]),
        step_ratio=_joined([each.step_ratio for each in studies]),
        contexts=tuple(each.contexts[0] for each in studies),
        sizes=tuple(map(len, studies)),
    )


def _joined(columns: Sequence[Floats | None]) -> Floats | None:
    """One after the other, where all have it."""
    known = [column for column in columns if column is not None]
    return np.concatenate(known) if len(known) == len(columns) else None


def _sizes(values: Sequence[KnobValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)


def _coded(values: Sequence[KnobValue]) -> Floats:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], dtype=np.float64)


def _stacked(columns: Sequence[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
