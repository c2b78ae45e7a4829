"""Prices on heterogeneous nodes: all ranks run at the speed of the slowest; a pipeline may assign it fewer layers."""

from collections.abc import Iterator
from dataclasses import replace

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
from strategist.frozen import frozen

LAYER_PARTS = (
    "matmul", "attention", "memory_bound", "recompute", "launch", "tp_communication", "cp_communication", "ep_communication",
)  # fmt: skip
"""Parts of a step that are proportional to the layers of a stage."""

ROUNDING_TOLERANCE = 1e-9
"""Tolerance for rounding errors of a division that gives a whole number of layers."""


@frozen
class HeterogeneousPrices(Priced):
    """Prices on heterogeneous nodes.

    capacities: (rows,) memory of the device with the largest share in use.
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
        estimate = replace(super().estimate(row), capacity_bytes=float(self.capacities[row]))
        if not self.layers[:, row].any():
            return estimate
        layers_of_rank = np.repeat(self.layers[:, row], self.ranks[:, row]).tolist()
        for index in range(
            sum(layers_of_rank) - self.model_layers
        ):  # ranks of a group have room for more layers than the model has
            layers_of_rank[-1 - index % len(layers_of_rank)] -= 1
        return replace(estimate, pipeline_layers=tuple(layers_of_rank))


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
    prices = HeterogeneousPrices(
        **vars(slowest), capacities=capacities, ranks=zeros, layers=zeros.copy(), model_layers=model.layers
    )
    rows = _rows_within_groups(cluster, columns, workload)
    return _with_splits(prices, rows, model, cluster, workload, columns, calibration, stack) if len(rows) else prices


def _rows_within_groups(cluster: Cluster, columns: Columns, workload: Workload) -> Counts:
    """Rows whose stages each lie within one group: pipelines are the outermost axis, and whole stages fill each group.

    Schedules with several stages per rank stay even.
    """
    v = view(columns, workload)
    ranks_per_stage = cluster.devices / v.pp
    within = (v.pp > 1) & (v.virtual_stages == 1) & ~v.replicas_outermost & ~v.streamed
    for group in cluster.groups:
        within &= (group.nodes * cluster.gpus_per_node) % ranks_per_stage == 0
    return np.flatnonzero(within)


def _with_splits(
    prices: HeterogeneousPrices,
    rows: Counts,
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration,
    stack: Stack,
) -> HeterogeneousPrices:
    """The prices, with those ``rows`` split by speed that gain by it."""
    candidates = columns.take(rows)
    pp = np.asarray(candidates.values["layout.pp"], dtype=np.int64)
    ranks = np.stack([pp * group.nodes // cluster.nodes for group in cluster.groups])
    uniform = [_uniform_cluster(cluster, index) for index in range(len(cluster.groups))]
    paces = np.stack([_layer_seconds(price(model, same_group, workload, candidates, calibration, stack)) for same_group in uniform])
    layers = split_layers(model.layers, paces, ranks)
    fixed = model.moe.first_dense_layers if model.moe else 0
    memory = {name: column.copy() for name, column in prices.memory.items()}
    time = {name: column.copy() for name, column in prices.time.items()}
    prices = replace(
        prices, memory=memory, time=time, peak_memory_bytes=prices.peak_memory_bytes.copy(),
        step_seconds=prices.step_seconds.copy(), host_memory_bytes_per_node=prices.host_memory_bytes_per_node.copy(),
        communication_seconds=prices.communication_seconds.copy(),
    )  # fmt: skip
    for equal in _rows_with_equal_splits(pp, layers):
        counts = layers[:, equal[0]]
        if (counts * pp[equal[0]] > fixed).all():
            shapes = [replace(model, layers=int(count * pp[equal[0]])) for count in counts]
            split = [
                price(shape, same_group, workload, candidates.take(equal), calibration, stack)
                for shape, same_group in zip(shapes, uniform, strict=True)
            ]
            _write_improvements(prices, rows[equal], split, ranks[:, equal], layers[:, equal])
    return prices


def _uniform_cluster(cluster: Cluster, index: int) -> Cluster:
    """The cluster with the nodes of one group everywhere; its network is unchanged."""
    group = cluster.groups[index]
    return replace(cluster, device=group.scaled_by_speed, intra=group.intra, groups=())


def _layer_seconds(priced: Priced) -> Floats:
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
            layers_of_rank = np.floor(seconds / paces + ROUNDING_TOLERANCE)
            enough = ((layers_of_rank * ranks).sum(axis=0) >= layers) & (layers_of_rank >= 1).all(axis=0)
            best = np.where(enough & (seconds < best), seconds, best)
    return np.minimum(np.floor(best / paces + ROUNDING_TOLERANCE), layers).astype(np.int64)


def _rows_with_equal_splits(pp: Counts, layers: Counts) -> Iterator[Counts]:
    """Row numbers of each group of rows with equal degree and equal split."""
    _, groups = np.unique(np.vstack([pp, layers]), axis=1, return_inverse=True)
    groups = groups.reshape(-1)
    for number in range(groups.max() + 1):
        yield np.flatnonzero(groups == number)


def _write_improvements(prices: HeterogeneousPrices, rows: Counts, split: list[Priced], ranks: Counts, layers: Counts) -> None:
    """Writes improvements into the columns of ``prices``: the slowest group's time, and the memory of the group with the
    largest share in use.
    """
    steps = np.stack([item.step_seconds for item in split])
    filled = np.stack([item.peak_memory_bytes / item.room_bytes for item in split])
    slowest, peak, columns = steps.argmax(axis=0), filled.argmax(axis=0), np.arange(len(rows))
    fits = filled.max(axis=0) <= 1
    gains = fits & ((steps.max(axis=0) < prices.step_seconds[rows]) | ~prices.fits_device[rows])
    improved = rows[gains]

    def select(values: list[Floats], index: Counts) -> Floats:
        chosen: Floats = np.stack(values)[index, columns][gains]
        return chosen

    for name, column in prices.time.items():
        column[improved] = select([item.time[name] for item in split], slowest)
    for name, column in prices.memory.items():
        column[improved] = select([item.memory[name] for item in split], peak)
    prices.step_seconds[improved] = select([item.step_seconds for item in split], slowest)
    prices.communication_seconds[improved] = select([item.communication_seconds for item in split], slowest)
    prices.peak_memory_bytes[improved] = select([item.peak_memory_bytes for item in split], peak)
    prices.host_memory_bytes_per_node[improved] = np.max([item.host_memory_bytes_per_node for item in split], axis=0)[gains]
    prices.capacities[improved] = select([item.room_bytes for item in split], peak)
    prices.ranks[:, improved], prices.layers[:, improved] = ranks[:, gains], layers[:, gains]
