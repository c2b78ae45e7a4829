"""Pricing: everything that the price of a candidate depends on, beside the candidate."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Mask
from strategist.cost.heterogeneous_nodes import price_heterogeneous
from strategist.cost.lower_bounds import LowerBounds, least_memory, lower_bounds
from strategist.cost.price import Priced, fitting_bytes, memory_margin
from strategist.cost.simulated_steps import Simulated, simulated
from strategist.expr.columns import Columns


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """Model, cluster and workload, the software stack whose runs are priced, and its calibration."""

    model: ModelShape
    cluster: Cluster
    workload: Workload
    calibration: Calibration = NEUTRAL
    stack: Stack = NATIVE

    def priced(self, columns: Columns, confidence: float | None = None) -> Priced:
        """Prices of a complete table. With a ``confidence``, candidates that do not fit with it need no step time."""
        return price_heterogeneous(
            self.model, self.cluster, self.workload, columns, self.calibration, self.stack, confidence=confidence
        )

    @property
    def is_bounded(self) -> bool:
        """Whether there are lower bounds: not for nodes that differ."""
        return not self.cluster.groups

    def lower_bounds(self, columns: Columns) -> LowerBounds:
        """Lower bounds of a table of families."""
        return lower_bounds(self.model, self.cluster, self.workload, columns, self.calibration, self.stack)

    def could_fit(self, columns: Columns, confidence: float) -> Mask:
        """Candidates whose model states alone fit the devices with a probability ``confidence``."""
        least = least_memory(self.model, self.workload, columns, self.stack)
        return np.asarray(least * self.memory_margin(confidence) <= fitting_bytes(self.cluster.device, columns))

    def simulated(self, columns: Columns, *, weighted: bool) -> tuple[Simulated, ...]:
        """Simulated steps of the pipelines in a table, their stages split by weight if ``weighted``."""
        return simulated(self.model, self.cluster, self.workload, columns, self.calibration, self.stack, weighted=weighted)

    def memory_margin(self, confidence: float) -> float:
        """Factor on predicted memory that makes a candidate fit with the probability ``confidence``."""
        return memory_margin(self.calibration.memory_spread, confidence)
