"""Observations: measured candidates with all inputs of their price."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import View, view
from strategist.cost.layer_flops import Work, work_of
from strategist.cost.model_states import Stage, distinct_stages
from strategist.cost.price import Priced, price
from strategist.cost.step import Step, step
from strategist.cost.step_inputs import StepInputs, concatenate, step_inputs, take
from strategist.expr.columns import Columns, row_of, table
from strategist.frozen import frozen


@frozen
class Observation:
    """One measured candidate; None for what was not measured.

    peak_memory_bytes: tensors on the device with the highest peak.
    weight: weight of its error in a fit.
    out_of_memory: whether it ran out of memory.
    exposed_comm_ratio: share of the step in which only collectives ran.
    alone: whether a pipeline's first rank was measured without its peers; ``step_seconds`` are those of its computation then.
    """

    model: ModelShape
    cluster: Cluster
    workload: Workload
    candidate: Candidate
    accumulation: int
    stack: Stack = NATIVE
    step_seconds: float | None = None
    peak_memory_bytes: float | None = None
    exposed_comm_ratio: float | None = None
    out_of_memory: bool = False
    weight: float = 1.0
    alone: bool = False


@frozen
class Table:
    """Observations with equal price inputs except candidates and batches; ``members`` are their indices among all observations.

    The number of micro-batches belongs to the candidate, so seconds and bytes are right; figures per token are not.
    """

    common: Observation
    columns: Columns
    members: tuple[int, ...]

    @cached_property
    def view(self) -> View:
        return view(self.columns, self.common.workload)

    @cached_property
    def work(self) -> Work:
        return work_of(self.common.model, self.common.workload, self.common.stack, self.view)

    @cached_property
    def ends(self) -> Sequence[Stage]:
        return distinct_stages(self.common.model, self.view, self.common.stack.memory_traits)

    def inputs(self, calibration: Calibration) -> StepInputs:
        """Step inputs, with links by the calibration."""
        common, cluster = self.common, calibration.calibrated_cluster(self.common.cluster)
        return step_inputs(common.model, cluster, common.workload, common.stack, self.view, self.work, self.ends)

    def step(self, calibration: Calibration) -> Step:
        """Step times only, without memory."""
        return step(self.inputs(calibration), calibration.factors)

    def priced(self, calibration: Calibration = NEUTRAL) -> Priced:
        """Prices of all observations at once."""
        common = self.common
        return price(common.model, common.cluster, common.workload, self.columns, calibration, common.stack)


def tables(observations: Sequence[Observation]) -> tuple[Table, ...]:
    """Observations as tables, one for each group that differs in its settings only, so that one call prices a table."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(observations):
        workload = replace(item.workload, global_batch=1)
        groups.setdefault(repr((item.model, item.cluster, workload, item.stack, item.alone)), []).append(index)
    return tuple(
        Table(
            common=observations[members[0]],
            columns=table([row_of(observations[index].candidate, observations[index].accumulation) for index in members]),
            members=tuple(members),
        )
        for members in groups.values()
    )


def inputs_of(groups: Sequence[Table], calibration: Calibration = NEUTRAL) -> StepInputs:
    """Step inputs of the observations of several tables, in their original order."""
    order = np.argsort(np.concatenate([group.members for group in groups]), kind="stable")
    return take(concatenate([group.inputs(calibration) for group in groups]), order)
