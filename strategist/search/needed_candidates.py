"""Needed candidates: of any number of candidates that fit, the few on which the first places of a ranking depend."""

from collections.abc import Callable

import numpy as np

from strategist.contract.knobs import CHOICES
from strategist.cost.candidate_arrays import Floats
from strategist.cost.price import Priced
from strategist.expr.columns import Array, Columns, joined
from strategist.frozen import frozen
from strategist.search.similar_candidates import first_of_groups, groups_of
from strategist.units import GIB

NEAR_TIE = 0.04
"""Objectives closer than this share count as equal; the cards' preferences then decide."""


@frozen
class Merits:
    """What orders candidates, one element each: the ``cost`` that the objective minimises, host memory per node, preference of the
    cards, and seconds of a step.
    """

    cost: Floats
    host_memory_bytes: Floats
    preference: Floats
    step_seconds: Floats

    @property
    def order(self) -> Array:
        """Places in order of merit: by classes of near ties; within a class by host memory (GiB), preference, cost, step time."""
        if not len(self.cost):
            return np.zeros(0, dtype=np.int64)
        classes = np.floor(np.log(self.cost / self.cost.min()) / np.log1p(NEAR_TIE))
        host = np.round(self.host_memory_bytes / GIB)
        return np.lexsort((np.arange(len(host)), self.step_seconds, self.cost, -self.preference, host, classes))

    def take(self, rows: Array) -> "Merits":
        """The merits of some candidates."""
        return Merits(**{name: each[rows] for name, each in vars(self).items()})

    def followed_by(self, other: "Merits") -> "Merits":
        """These merits, then others."""
        return Merits(**{name: np.concatenate([each, getattr(other, name)]) for name, each in vars(self).items()})


def objective_cost(priced: Priced, objective: str) -> Floats:
    """The quantity that the objective minimises. On a given cluster cost is proportional to time."""
    joules = priced.energy_joules_per_step if objective == "energy" else None
    if joules is not None:
        return joules
    return priced.peak_memory_bytes if objective == "memory" else priced.step_seconds


class NeededCandidates:
    """Collects candidates table by table; keeps those that may take one of the ``first`` places, or may be the first of one of the
    first ``kinds`` groups of similar candidates; all that fit if ``first`` is None.

    fits, fits_without_hosts: number of candidates that fit, and of these the number that keeps no state in host memory.
    fits_device: number of candidates that fit the devices.
    """

    def __init__(
        self, objective: str, confidence: float, preferences: Callable[[Columns], Floats], first: int | None, kinds: int
    ) -> None:
        self._objective, self._confidence, self._preferences = objective, confidence, preferences
        self._first, self._kinds = first, kinds
        self.fits = self.fits_without_hosts = self.fits_device = 0
        self._limit, self._rows, self._rows_after_cut = np.inf, 0, 0
        self._kept: list[tuple[Columns, Merits]] = []
        self._nearest: list[Columns] = []

    def add(self, columns: Columns, priced: Priced) -> None:
        """Adds a table and its prices."""
        fits, hosts = priced.fits_with(self._confidence), priced.fits_host
        fitting = np.flatnonzero(fits & hosts)
        self.fits += len(fitting)
        self.fits_device += int(np.count_nonzero(fits))
        if not self.fits:
            self._nearest.append(columns.take(_nearest_to_fit(priced)))
        self.fits_without_hosts += int(np.count_nonzero(without_hosts(columns)[fitting]))
        cost = objective_cost(priced, self._objective)
        rows = fitting[cost[fitting] <= self._limit]
        if not len(rows):
            return
        taken, host = columns.take(rows), priced.host_memory_bytes_per_node[rows]
        merits = Merits(
            cost=cost[rows], host_memory_bytes=host, preference=self._preferences(taken), step_seconds=priced.step_seconds[rows]
        )
        self._kept.append((taken, merits))
        self._rows += len(rows)
        if self._first is not None and self._rows > 2 * self._rows_after_cut:
            self._kept = [self._cut(*self._merged(), self._first)]

    @property
    def ranked(self) -> tuple[Columns, Floats, Array]:
        """The needed candidates, their preferences, and their rows in order of merit. If nothing fits, these are the candidates of
        each table that are nearest to fitting, without an order.
        """
        if not self.fits:
            columns = joined(self._nearest)
            return columns, np.zeros(columns.rows), np.zeros(0, dtype=np.int64)
        columns, merits = self._merged()
        order = merits.order
        if self._first is not None:
            heads = first_of_groups(groups_of(columns)[0], order)[: self._kinds] if self._kinds else order[:0]
            needed = np.zeros(columns.rows, dtype=np.bool_)
            needed[order[: self._first]] = needed[heads] = True
            order = (np.cumsum(needed) - 1)[order[needed[order]]]
            columns, merits = columns.take(needed), merits.take(needed)
        return columns, merits.preference, order

    def _merged(self) -> tuple[Columns, Merits]:
        columns, merits = joined([columns for columns, _ in self._kept]), self._kept[0][1]
        for _, others in self._kept[1:]:
            merits = merits.followed_by(others)
        return columns, merits

    def _cut(self, columns: Columns, merits: Merits, first: int) -> tuple[Columns, Merits]:
        """What may be needed of all that was added until now.

        One of the first places costs at most a near tie more than the place of the last one by cost alone; the first of a group a
        near tie more than the cheapest of that group.
        """
        self._limit = limit = _near_tie_of(merits.cost, first)
        needed = merits.cost <= limit
        if self._kinds:
            groups, sizes = groups_of(columns)
            cheapest = np.full(len(sizes), np.inf)
            np.minimum.at(cheapest, groups, merits.cost)
            of_groups = _near_tie_of(cheapest, self._kinds)
            needed |= (merits.cost <= cheapest[groups] * (1 + NEAR_TIE)) & (cheapest[groups] <= of_groups)
            self._limit = max(limit, of_groups * (1 + NEAR_TIE))
        self._rows = self._rows_after_cut = int(np.count_nonzero(needed))
        return columns.take(needed), merits.take(needed)


def _near_tie_of(costs: Floats, place: int) -> float:
    """The highest cost that is a near tie of the one at a place; infinite if there are fewer."""
    return float(np.partition(costs, place - 1)[place - 1]) * (1 + NEAR_TIE) if len(costs) >= place else np.inf


def without_hosts(columns: Columns) -> Array:
    """Mask of the candidates that keep no state in host memory."""
    none, stays = CHOICES["offload"].index("none"), CHOICES["activation_offload"].index(False)
    return np.asarray((columns.values["knobs.offload"] == none) & (columns.values["knobs.activation_offload"] == stays))


def _nearest_to_fit(priced: Priced) -> Array:
    """The row with the least device memory, and among rows that fit the device the one with the least host memory."""
    if not len(priced.peak_memory_bytes):
        return np.zeros(0, dtype=np.int64)
    on_devices = np.flatnonzero(priced.peak_memory_bytes <= priced.capacity_bytes)
    hosts = on_devices[np.argmin(priced.host_memory_bytes_per_node[on_devices])][None] if len(on_devices) else on_devices
    return np.unique(np.append(np.argmin(priced.peak_memory_bytes), hosts))
