"""Case: a published row as a request that the planner can price, with its measurement."""

from strategist.accuracy.row import Row
from strategist.accuracy.row_cluster import cluster_of
from strategist.accuracy.row_model import shape_of
from strategist.accuracy.row_setup import Batch, batch_of, knobs_of, layout_of, workload_of
from strategist.accuracy.row_stack import stack_of
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.accuracy.text_columns import (
    ALLOCATED,
    ANALYTIC,
    HARDWARE_FLOPS,
    HARDWARE_FLOPS_STACKS,
    INT8_BASE,
    MEMORY_LAST_STAGE,
    MEMORY_RANK,
    MEMORY_STAGE,
    NOT_A_BENCHMARK,
    PROCESS,
    RESERVED,
    UNRELIABLE,
    UNSUPPORTED_TECHNIQUES,
    last_number,
    without_parentheses,
)
from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.layer_flops import model_flops_per_token
from strategist.frozen import frozen
from strategist.units import GIB

UNSUPPORTED_PRECISIONS = ("nvfp4", "int8", "fp4", "int4", "mxfp4")


@frozen
class Case:
    """One published row: what is priced, and what was measured. A measured value is None if the source has none.

    peak_memory_bytes: memory of one device.
    reserved: ``peak_memory_bytes`` is what the allocator reserved, not only what tensors use.
    process: it is what nvidia-smi shows of a device: also the CUDA context and communicators.
    oom: whether the run ran out of memory; None if nothing ran.
    stage: pipeline stage whose memory was measured: ``fullest``, ``first`` or ``last``.
    """

    row: Row
    model: ModelShape
    cluster: Cluster
    workload: Workload
    stack: Stack
    candidate: Candidate
    accumulation: int
    step_seconds: float | None
    peak_memory_bytes: float | None
    reserved: bool
    process: bool = False
    oom: bool | None
    stage: str = "fullest"

    @property
    def fits_times(self) -> bool:
        """Whether calibrations may be fitted to its time: there is one, and its source calls it a benchmark."""
        return bool(self.step_seconds) and not NOT_A_BENCHMARK.search(self.row.notes)

    @property
    def sweep(self) -> tuple[str, ...]:
        """Key of the row's sweep: source, model, device, number of devices, sequence length, global batch and training mode."""
        workload = self.workload
        parts = (
            self.row.file,
            self.row.model,
            self.cluster.device.name,
            self.cluster.devices,
            workload.seq_len,
            workload.global_batch,
            workload.train,
        )
        return tuple(map(str, parts))

    @property
    def layout(self) -> str:
        """Key of the layout in a sweep; runs with the same key have all settings and the accumulation steps in common."""
        return repr((self.candidate, self.accumulation))


def case_of(row: Row) -> Case:
    """The case of a row.

    Raises:
        Skipped: the row cannot be priced; with the reason.
    """
    if UNRELIABLE.search(row.notes):
        raise Skipped(SkipReason.FLAGGED)
    if UNSUPPORTED_TECHNIQUES.search(f"{row.row_id} ; {row.model} ; {without_parentheses(row.notes)}"):
        raise Skipped(SkipReason.OTHER_TECHNIQUE)
    if row.precision in UNSUPPORTED_PRECISIONS or INT8_BASE.search(row.notes):
        raise Skipped(SkipReason.OTHER_ARITHMETIC)
    model, cluster = shape_of(row), cluster_of(row)
    layout = layout_of(row, cluster.devices)
    batch = batch_of(row, layout, cluster.devices)
    stack = stack_of(row)
    workload = workload_of(row, model, batch, stack)
    stage = _stage(row, layout.pp, cluster.devices, stack.memory_traits.logged)
    seconds = _seconds(row, model, workload, cluster, batch, stack)
    memory = None if row.peak_mem_gib is None or stage == "between" else row.peak_mem_gib * GIB
    oom = None if row.oom is None or ANALYTIC.search(row.notes) else bool(row.oom)
    if seconds is None and memory is None and row.oom is None:
        raise Skipped(SkipReason.MEASURED_NOTHING)
    return Case(
        row=row,
        model=model,
        cluster=cluster,
        workload=workload,
        stack=stack,
        candidate=Candidate(layout=layout, knobs=knobs_of(row, layout, batch, stack)),
        accumulation=batch.accumulation,
        step_seconds=seconds,
        peak_memory_bytes=memory,
        reserved=_reserved(row),
        process=_reserved(row) and bool(PROCESS.search(f"{row.mem_kind} ; {row.notes}")),
        oom=oom,
        stage="fullest" if stage == "between" else stage,
    )


def _stage(row: Row, stages: int, devices: int, default: str) -> str:
    """The pipeline stage whose memory is published: ``first``, ``last``, ``between`` or ``fullest``. Ranks are ordered by stage.
    If the row does not state the stage, it is the one that the framework logs.
    """
    stage = last_number(MEMORY_STAGE, row.notes)
    if stage is None and (rank := last_number(MEMORY_RANK, row.notes)) is not None:
        stage = rank * stages // devices
    if stages == 1 or (stage is None and not MEMORY_LAST_STAGE.search(row.notes)):
        return "fullest" if stages == 1 else default
    if stage is None or stage == stages - 1:
        return "last"
    return "first" if stage == 0 else "between"


def _reserved(row: Row) -> bool:
    """Whether the memory is reserved memory: by the column, otherwise by the notes; reserved if neither says (the cautious
    reading).
    """
    if row.mem_kind:
        return row.mem_kind not in ("allocated", "active")
    return bool(RESERVED.search(row.notes)) or not ALLOCATED.search(row.notes)


def _seconds(row: Row, model: ModelShape, workload: Workload, cluster: Cluster, batch: Batch, stack: Stack) -> float | None:
    """Step seconds as published, otherwise from tokens/s, otherwise from MFU or FLOP/s.

    A published step time is not used if the batch was inferred; a published throughput is.
    """
    if row.step_time_s and batch.stated:
        return row.step_time_s
    if row.step_time_s and not row.seq_len:
        return None
    tokens = workload.tokens_per_step
    if row.tokens_per_s_per_gpu:
        return tokens / (row.tokens_per_s_per_gpu * cluster.devices)
    flops = model_flops_per_token(model, workload) * tokens
    if row.mfu:
        return flops / (row.mfu * cluster.device.peak(workload.precision) * cluster.devices)
    if not row.tflops_per_gpu:
        return None
    includes_recomputation = stack.name in HARDWARE_FLOPS_STACKS or HARDWARE_FLOPS.search(row.notes)
    recompute_factor = 4 / 3 if row.ac_mode == "full" and includes_recomputation else 1.0
    return recompute_factor * flops / (row.tflops_per_gpu * 1e12 * cluster.devices)
