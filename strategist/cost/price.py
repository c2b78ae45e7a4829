"""Price: memory and time of every candidate of a table, by part; one code path for one plan and for millions."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from math import log
from statistics import NormalDist

import numpy as np

from strategist.contract.cluster import Cluster, Device
from strategist.contract.estimate import Estimate, MemoryParts, TimeParts
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Counts, Floats, Mask, Parts, View, total, view
from strategist.cost.energy import limit_watts, step_joules
from strategist.cost.host_memory import host_memory
from strategist.cost.layer_flops import Work, model_flops_per_token, work_of
from strategist.cost.memory import PARTS, communicator_memory, device_memory, needed_memory
from strategist.cost.memory_context import memory_context
from strategist.cost.model_states import distinct_stages
from strategist.cost.step import Step, step
from strategist.cost.step_inputs import step_inputs
from strategist.expr.columns import Columns
from strategist.frozen import frozen

CHUNK_ROWS = 16384
"""Candidates priced at once: few enough that their columns stay in the processor's cache."""

FEW_ROWS = 1024
"""Maximum number of candidates that are all timed, whether they fit or not: selecting those that fit takes longer."""


@frozen
class Chunk:
    """Prices of some candidates: memory of a pipeline's ``first`` and ``last`` stage, the larger of both (``memory``, in total
    ``needed_bytes``), host memory per node, and the step.
    """

    first: Parts
    last: Parts
    memory: Parts
    needed_bytes: Floats
    host_memory_bytes: Floats
    step: Step


@frozen
class Priced:
    """Predictions as columns, one element per candidate.

    memory, time: parts, by the contract's names.
    chunks: prices of the chunks that the columns join.
    chunk_order: the row of the joined chunks of each row, where candidates of several stacks were priced apart.
    step_range, memory_spread: of the calibration that each candidate was priced with.
    stage_layers: by row, number of layers of each stage if these are uneven.
    """

    memory: Parts
    chunks: tuple[Chunk, ...]
    peak_memory_bytes: Floats
    host_memory_bytes_per_node: Floats
    time: Parts
    step_seconds: Floats
    communication_seconds: Floats
    capacity_bytes: float
    communicator_bytes: Floats
    host_capacity_bytes: float | None
    tokens_per_step: int
    flops_per_step: float
    peak_flops: float
    price_per_second: float | None
    step_range: tuple[Floats, Floats]
    memory_spread: Floats
    limit_watts: float | None
    chunk_order: Counts | None = None
    stage_layers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def first_stage(self) -> Parts:
        """The memory of a pipeline's first stage."""
        return self._of_chunks([chunk.first for chunk in self.chunks])

    @property
    def last_stage(self) -> Parts:
        """The memory of a pipeline's last stage."""
        return self._of_chunks([chunk.last for chunk in self.chunks])

    def _of_chunks(self, parts: Sequence[Parts]) -> Parts:
        joined = {name: np.concatenate([item[name] for item in parts]) for name in PARTS}
        return joined if self.chunk_order is None else {name: column[self.chunk_order] for name, column in joined.items()}

    @property
    def room_bytes(self) -> Floats:
        """Device memory that each candidate may use: usable memory without further communicators."""
        return _room(self.capacity_bytes, self.communicator_bytes)

    @property
    def fits_device(self) -> Mask:
        """Whether each candidate fits the device with a probability of at least one half."""
        return self.fits_with(0.5)

    def fits_with(self, confidence: float) -> Mask:
        """Whether each candidate fits with the probability ``confidence``; measured memory is log-normal around the prediction."""
        needed = self.peak_memory_bytes * np.exp(self.memory_spread * NormalDist().inv_cdf(confidence))
        return np.asarray(needed <= self.room_bytes, dtype=np.bool_)

    def fit_confidence(self, row: int) -> float:
        """Probability that one candidate fits."""
        room = float(self.room_bytes[row])
        return NormalDist().cdf(log(room / float(self.peak_memory_bytes[row])) / float(self.memory_spread[row]))

    @property
    def fits_host(self) -> Mask:
        """Whether each candidate fits the hosts; all true if the hosts' memory is unknown."""
        bound = np.inf if self.host_capacity_bytes is None else self.host_capacity_bytes
        return np.asarray(self.host_memory_bytes_per_node <= bound, dtype=np.bool_)

    @property
    def energy_joules_per_step(self) -> Floats | None:
        """Energy of a step; None if the board's power limit is unknown."""
        return None if self.limit_watts is None else step_joules(self.limit_watts, self.time)

    def estimate(self, row: int) -> Estimate:
        """The prediction for one candidate."""
        time = TimeParts(**{name: float(column[row]) for name, column in self.time.items()})
        seconds = float(self.step_seconds[row])
        communication = float(self.communication_seconds[row])
        row_time = {name: column[row : row + 1] for name, column in self.time.items()}
        joules = None if self.limit_watts is None else float(step_joules(self.limit_watts, row_time)[0])
        return Estimate(
            memory=MemoryParts(**{name: float(self.memory[name][row]) for name in PARTS}),
            peak_memory_bytes=float(self.peak_memory_bytes[row]),
            capacity_bytes=float(self.room_bytes[row]),
            host_memory_bytes_per_node=float(self.host_memory_bytes_per_node[row]),
            time=time,
            step_seconds=seconds,
            tokens_per_second=self.tokens_per_step / seconds,
            mfu=self.flops_per_step / (seconds * self.peak_flops),
            communication_seconds=communication,
            comm_ratio=communication / seconds,
            exposed_comm_ratio=time.exposed_communication / seconds,
            step_seconds_range=(seconds * float(self.step_range[0][row]), seconds * float(self.step_range[1][row])),
            fit_confidence=self.fit_confidence(row),
            price_per_step=None if self.price_per_second is None else self.price_per_second * seconds,
            energy_joules_per_step=joules,
            pipeline_layers=self.stage_layers.get(row, ()),
        )


def price(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration = NEUTRAL,
    stack: Stack = NATIVE,
    *,
    confidence: float | None = None,
) -> Priced:
    """Prices every candidate of a complete table. Figures of illegal candidates are meaningless.

    With a ``confidence``, the time of candidates that do not fit with that probability may be left out: it is NaN then.
    """
    margin = None if confidence is None else memory_margin(calibration.memory_spread, confidence)
    chunks = [
        _price_chunk(
            model,
            cluster,
            workload,
            columns.take(np.arange(begin, min(begin + CHUNK_ROWS, columns.rows))),
            calibration,
            stack,
            margin,
        )
        for begin in range(0, max(columns.rows, 1), CHUNK_ROWS)
    ]
    memory = {name: np.concatenate([chunk.memory[name] for chunk in chunks]) for name in PARTS}
    time = {item.name: np.concatenate([chunk.step.time[item.name] for chunk in chunks]) for item in fields(TimeParts)}
    device = cluster.device
    return Priced(
        memory=memory,
        chunks=tuple(chunks),
        peak_memory_bytes=np.concatenate([chunk.needed_bytes for chunk in chunks]),
        host_memory_bytes_per_node=np.concatenate([chunk.host_memory_bytes for chunk in chunks]),
        time=time,
        step_seconds=total(time),
        communication_seconds=np.concatenate([chunk.step.communication_seconds for chunk in chunks]),
        capacity_bytes=float(device.usable_memory_bytes),
        communicator_bytes=_communicators(device, columns),
        host_capacity_bytes=None if cluster.host_memory_bytes is None else float(cluster.host_memory_bytes),
        tokens_per_step=workload.tokens_per_step,
        flops_per_step=model_flops_per_token(model, workload) * workload.tokens_per_step,
        peak_flops=cluster.peak(workload.compute_dtype),
        step_range=(np.full(columns.rows, calibration.step_range[0]), np.full(columns.rows, calibration.step_range[1])),
        memory_spread=np.full(columns.rows, calibration.memory_spread),
        price_per_second=None if device.price_per_hour is None else device.price_per_hour * cluster.devices / 3600,
        limit_watts=limit_watts(cluster),
    )


def memory_margin(spread: float, confidence: float) -> float:
    """Factor on predicted memory that makes a candidate fit with the probability ``confidence``."""
    return float(np.exp(spread * NormalDist().inv_cdf(confidence)))


def _room(capacity_bytes: float, communicator_bytes: Floats) -> Floats:
    return np.maximum(capacity_bytes - communicator_bytes, 1.0)


def fitting_bytes(device: Device, columns: Columns) -> Floats:
    """Device memory that each candidate may use: usable memory without further communicators."""
    return _room(float(device.usable_memory_bytes), _communicators(device, columns))


def _communicators(device: Device, columns: Columns) -> Floats:
    return communicator_memory(columns) if device.kind == "cuda" else np.zeros(columns.rows)


def _price_chunk(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration,
    stack: Stack,
    margin: float | None,
) -> Chunk:
    """The chunk; with a ``margin``, without the time of those that do not fit with it, where they are more than half of many."""
    v = view(columns, workload)
    work = work_on(model, cluster, workload, stack, v)
    ends = distinct_stages(model, v, stack.memory_traits)
    context = memory_context(model, workload, stack, work, v)
    memory_by_stage = [device_memory(stage, context, cluster.device.allocator_slack, calibration.memory) for stage in ends]
    first, last = memory_by_stage[0], memory_by_stage[-1]
    memory, needed_bytes = first, needed_memory(first)
    if last is not first:
        last_needed_bytes = needed_memory(last)
        larger = last_needed_bytes > needed_bytes
        memory = {name: np.where(larger, last[name], first[name]) for name in PARTS}
        needed_bytes = np.maximum(needed_bytes, last_needed_bytes)
    host = host_memory(ends[0], context, cluster)
    rows: Counts | None = None
    if margin is not None:
        room = fitting_bytes(cluster.device, columns)
        fits = needed_bytes * margin <= room
        rows = np.flatnonzero(fits) if 2 * np.count_nonzero(fits) < columns.rows > FEW_ROWS else None
    if rows is not None:
        v = view(columns.take(rows), workload)
        work, ends = work_on(model, cluster, workload, stack, v), distinct_stages(model, v, stack.memory_traits)
    inputs = step_inputs(model, calibration.calibrated_cluster(cluster), workload, stack, v, work, ends)
    step_time = step(inputs, calibration.factors)
    step_time = step_time if rows is None else step_time.spread(rows, columns.rows)
    return Chunk(first=first, last=last, memory=memory, needed_bytes=needed_bytes, host_memory_bytes=host, step=step_time)


def work_on(model: ModelShape, cluster: Cluster, workload: Workload, stack: Stack, v: View) -> Work:
    """The work of each candidate on the devices of a cluster."""
    documents = workload.document_tokens if cluster.device.kind == "cuda" else 0  # a CPU masks pair by pair
    return work_of(model, replace(workload, document_tokens=documents), stack, v)
