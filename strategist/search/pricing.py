"""Pricing: everything that the price of a candidate depends on, beside the candidate."""

from collections.abc import Iterator
from dataclasses import field, replace

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Counts, Mask
from strategist.cost.heterogeneous_nodes import price_heterogeneous
from strategist.cost.joined_prices import joined
from strategist.cost.lower_bounds import LowerBounds, least_memory, least_of, lower_bounds
from strategist.cost.price import Priced, fitting_bytes, memory_margin
from strategist.cost.simulated_steps import Simulated, simulated
from strategist.expr.check import Expression
from strategist.expr.columns import Columns
from strategist.expr.evaluate import Facts, mask
from strategist.frozen import frozen


@frozen
class ConditionalPricing:
    """The stack, with its calibration, of candidates for which a condition holds."""

    when: Expression
    stack: Stack
    calibration: Calibration


@frozen
class Pricing:
    """Model, cluster and workload, the software stack whose runs are priced, and its calibration.

    others: stacks of some candidates, which the back end runs on another framework; the first whose condition holds.
    facts: those of the situation, for these conditions.
    """

    model: ModelShape
    cluster: Cluster
    workload: Workload
    calibration: Calibration = NEUTRAL
    stack: Stack = NATIVE
    others: tuple[ConditionalPricing, ...] = ()
    facts: Facts = field(default_factory=dict)

    @property
    def _by_stack(self) -> tuple["Pricing", ...]:
        """A pricing of each stack; the last is that of candidates for which no condition holds."""
        with_others = (replace(self, stack=other.stack, calibration=other.calibration, others=()) for other in self.others)
        return *with_others, replace(self, others=())

    def _rows_by_stack(self, columns: Columns) -> Iterator[tuple["Pricing", Counts]]:
        """The pricings that some rows of a table have, with these rows."""
        remaining = np.ones(columns.rows, dtype=np.bool_)
        for pricing, other in zip(self._by_stack, (*self.others, None), strict=True):
            holds = remaining if other is None else remaining & mask(other.when, self.facts, columns)
            remaining = remaining & ~holds
            if holds.any():
                yield pricing, np.flatnonzero(holds)

    def priced(self, columns: Columns, confidence: float | None = None) -> Priced:
        """Prices of a complete table. With a ``confidence``, candidates that do not fit with it need no step time."""
        if self.others and columns.rows:
            pieces = [(rows, part.priced(columns.take(rows), confidence)) for part, rows in self._rows_by_stack(columns)]
            return pieces[0][1] if len(pieces) == 1 else joined(pieces)
        return price_heterogeneous(
            self.model, self.cluster, self.workload, columns, self.calibration, self.stack, confidence=confidence
        )

    @property
    def is_bounded(self) -> bool:
        """Whether there are lower bounds: not for nodes that differ."""
        return not self.cluster.groups

    def lower_bounds(self, columns: Columns) -> LowerBounds:
        """Lower bounds of a table of families."""
        bounds = [
            lower_bounds(self.model, self.cluster, self.workload, columns, part.calibration, part.stack) for part in self._by_stack
        ]
        return least_of(bounds)

    def could_fit(self, columns: Columns, confidence: float) -> Mask:
        """Candidates whose model states alone fit the devices with a probability ``confidence``."""
        room = fitting_bytes(self.cluster.device, columns)
        needed = [
            least_memory(self.model, self.workload, columns, part.stack) * part._margin(confidence) for part in self._by_stack
        ]
        return np.asarray(np.minimum.reduce(needed) <= room)

    def simulated(self, columns: Columns, *, weighted: bool) -> tuple[Simulated, ...]:
        """Simulated steps of the pipelines in a table, their stages split by weight if ``weighted``."""
        found: list[Simulated] = []
        for part, rows in self._rows_by_stack(columns):
            simulations = simulated(
                self.model, self.cluster, self.workload, columns.take(rows), part.calibration, part.stack, weighted=weighted
            )
            found += (replace(item, rows=tuple(rows[list(item.rows)].tolist())) for item in simulations)
        return tuple(found)

    def memory_margin(self, confidence: float) -> float:
        """Factor on predicted memory that makes a candidate fit with the probability ``confidence``, the least of all stacks."""
        return min(part._margin(confidence) for part in self._by_stack)

    def _margin(self, confidence: float) -> float:
        return memory_margin(self.calibration.memory_spread, confidence)
