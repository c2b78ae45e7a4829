"""Prices on heterogeneous nodes: all ranks run at the speed of the slowest; a pipeline may assign it fewer layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.estimate import Estimate
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Counts, Floats, view
from strategist.cost.price import Priced, price
from strategist.expr.columns import Columns

LAYER_PARTS = (
    "matmul", "attention", "memory_bound", "recompute", "launch", "tp_communication", "cp_communication", "ep_communication",
)  # fmt: skip
"""Parts of a step that are proportional to the layers of a stage."""

ROUNDING_TOLERANCE = 1e-9
"""Tolerance for rounding errors of a division that gives a whole number of layers."""


@dataclass(frozen=True, kw_only=True)
class HeterogeneousPrices(Priced):
    """Prices on heterogeneous nodes.

    capacities: (rows,) memory of the device with the peak, the fullest one.
    ranks, layers: (groups, rows) number of stages on the nodes of a group, and layers of each; 0 if stages are even.
    """

    capacities: Floats
    ranks: Counts
    layers: Counts
    model_layers: int

    @property
    def room_bytes(self) -> Floats:
        return self.capacities

    def estimate(self, row: int) -> Estimate:
        """The prediction for one candidate, with the layers of its ranks where they differ."""
        found = replace(super().estimate(row), capacity_bytes=float(self.capacities[row]))
        if not self.layers[:, row].any():
            return found
        each = np.repeat(self.layers[:, row], self.ranks[:, row]).tolist()
        for spare in range(sum(each) - self.model_layers):  # of groups that have room for more than there is
            each[-1 - spare % len(each)] -= 1
        return replace(found, pipeline_layers=tuple(each))


def price_heterogeneous(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration = NEUTRAL,
    stack: Stack = NATIVE,
    *,
    confidence: float | None = None,
) -> Priced:
    """Prices every candidate of a complete table on nodes that may differ.

    A candidate runs at the pace of the slowest device and links, with the least memory. If each of its stages lies within one group
    of nodes, layers are split by speed if that is faster or is needed to fit. ``confidence``: see :func:`price`.
    """
    confidence = None if cluster.groups else confidence
    slowest = price(model, cluster, workload, columns, calibration, stack, confidence=confidence)
    if not cluster.groups:
        return slowest
    zeros = np.zeros((len(cluster.groups), columns.rows), dtype=np.int64)
    capacities = slowest.room_bytes
    found = HeterogeneousPrices(**vars(slowest), capacities=capacities, ranks=zeros, layers=zeros.copy(), model_layers=model.layers)
    rows = _apart(cluster, columns, workload)
    return _with_splits(found, rows, model, cluster, workload, columns, calibration, stack) if len(rows) else found


def _apart(cluster: Cluster, columns: Columns, workload: Workload) -> Counts:
    """Rows whose stages each lie within one group: pipelines are the outermost axis, and whole stages fill each group.

    Schedules with several stages per rank stay even.
    """
    v = view(columns, workload)
    stage = cluster.devices / v.pp
    apart = (v.pp > 1) & (v.virtual_stages == 1) & ~v.replicas_outermost & ~v.streamed
    for group in cluster.groups:
        apart &= (group.nodes * cluster.gpus_per_node) % stage == 0
    return np.flatnonzero(apart)


def _with_splits(
    found: HeterogeneousPrices,
    rows: Counts,
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration,
    stack: Stack,
) -> HeterogeneousPrices:
    """The prices, with those ``rows`` split by speed that gain by it."""
    some = columns.take(rows)
    pp = np.asarray(some.values["layout.pp"], dtype=np.int64)
    ranks = np.stack([pp * group.nodes // cluster.nodes for group in cluster.groups])
    alone = [_alone(cluster, number) for number in range(len(cluster.groups))]
    paces = np.stack([_pace(price(model, only, workload, some, calibration, stack)) for only in alone])
    layers = split_layers(model.layers, paces, ranks)
    fixed = model.moe.first_dense_layers if model.moe else 0
    memory = {name: column.copy() for name, column in found.memory.items()}
    time = {name: column.copy() for name, column in found.time.items()}
    found = replace(
        found, memory=memory, time=time, peak_memory_bytes=found.peak_memory_bytes.copy(), step_seconds=found.step_seconds.copy(),
        host_memory_bytes_per_node=found.host_memory_bytes_per_node.copy(),
        communication_seconds=found.communication_seconds.copy(),
    )  # fmt: skip
    for at in _alike(pp, layers):
        each = layers[:, at[0]]
        if (each * pp[at[0]] > fixed).all():
            shapes = [replace(model, layers=int(count * pp[at[0]])) for count in each]
            split = [
                price(shape, only, workload, some.take(at), calibration, stack) for shape, only in zip(shapes, alone, strict=True)
            ]
            _take(found, rows[at], split, ranks[:, at], layers[:, at])
    return found


def _alone(cluster: Cluster, number: int) -> Cluster:
    """The cluster with all nodes like those of one group; its network stays as slow as it is."""
    group = cluster.groups[number]
    return replace(cluster, device=group.scaled_by_speed, intra=group.intra, groups=())


def _pace(priced: Priced) -> Floats:
    """Seconds that a stage spends on its layers in a step with even stages."""
    total: Floats = sum((priced.time[name] for name in LAYER_PARTS), start=np.zeros(1))
    return total


def split_layers(layers: int, paces: Floats, ranks: Counts) -> Counts:
    """Layers of each rank by group (groups, rows) that minimise the slowest rank's time, at least one each.

    ``paces`` are relative seconds per layer, ``ranks`` numbers of ranks. The sum may exceed the model's layers: some ranks then
    have one less. The optimum is the time of some group with some number of layers, so all are tried.
    """
    best = np.full(paces.shape[1], np.inf)
    for pace in paces:
        for count in range(1, layers + 1):
            seconds = count * pace
            each = np.floor(seconds / paces + ROUNDING_TOLERANCE)
            enough = ((each * ranks).sum(axis=0) >= layers) & (each >= 1).all(axis=0)
            best = np.where(enough & (seconds < best), seconds, best)
    return np.minimum(np.floor(best / paces + ROUNDING_TOLERANCE), layers).astype(np.int64)


def _alike(pp: Counts, layers: Counts) -> Iterator[Counts]:
    """Row numbers with equal degree and equal split, together."""
    _, kinds = np.unique(np.vstack([pp, layers]), axis=1, return_inverse=True)
    kinds = kinds.reshape(-1)
    for kind in range(kinds.max() + 1):
        yield np.flatnonzero(kinds == kind)


def _take(found: HeterogeneousPrices, rows: Counts, split: list[Priced], ranks: Counts, layers: Counts) -> None:
    """Writes improvements into the columns of ``found``: the slowest group's time, and the fullest group's memory."""
    steps = np.stack([item.step_seconds for item in split])
    fill = np.stack([item.peak_memory_bytes / item.room_bytes for item in split])
    slow, full, every = steps.argmax(axis=0), fill.argmax(axis=0), np.arange(len(rows))
    fits = fill.max(axis=0) <= 1
    gains = fits & ((steps.max(axis=0) < found.step_seconds[rows]) | ~found.fits_device[rows])
    at = rows[gains]

    def of(columns: list[Floats], which: Counts) -> Floats:
        chosen: Floats = np.stack(columns)[which, every][gains]
        return chosen

    for name, column in found.time.items():
        column[at] = of([item.time[name] for item in split], slow)
    for name, column in found.memory.items():
        column[at] = of([item.memory[name] for item in split], full)
    found.step_seconds[at] = of([item.step_seconds for item in split], slow)
    found.communication_seconds[at] = of([item.communication_seconds for item in split], slow)
    found.peak_memory_bytes[at] = of([item.peak_memory_bytes for item in split], full)
    found.host_memory_bytes_per_node[at] = np.max([item.host_memory_bytes_per_node for item in split], axis=0)[gains]
    found.capacities[at] = of([item.room_bytes for item in split], full)
    found.ranks[:, at], found.layers[:, at] = ranks[:, gains], layers[:, gains]
