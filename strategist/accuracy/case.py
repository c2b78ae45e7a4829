"""A case: a published row as what ``plan`` prices, with what was measured beside it."""

from dataclasses import dataclass

from strategist.accuracy.place import cluster_of
from strategist.accuracy.row import Row
from strategist.accuracy.shape import shape_of
from strategist.accuracy.skip import Skip, Skipped
from strategist.accuracy.words import FLAGS, HARDWARE_FLOPS, OFFLOAD, OTHER_TECHNIQUES, PURE_HALF, STACKS, TRAIN, first
from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.work import model_flops_per_token
from strategist.profiles.stacks import load_stack
from strategist.units import GIB

RECOMPUTE = {
    "full": "full", "selective_op": "selective", "selective_layer": "alternate", "megatron_selective": "selective", "none": "none",
}  # fmt: skip
SCHEDULES = {"gpipe": "gpipe", "zero bubble": "zbv_zero_bubble", "dualpipe": "dual_pipe_v"}
OPTIMIZERS = {"8bit": "adamw8bit", "8-bit": "adamw8bit", "muon": "muon", "sgd": "sgd"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row: what is priced, and what was measured; None where the source has no such figure. Memory in bytes of one device.

    ``reserved`` says that the figure of memory counts what the allocator holds, not only what tensors take.
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
    oom: bool

    @property
    def sweep(self) -> tuple[str, ...]:
        """Rows that differ in their layout alone."""
        work = self.workload
        parts = (
            self.row.file,
            self.model.name,
            self.cluster.device.name,
            self.cluster.devices,
            work.seq_len,
            work.global_batch,
            work.train,
        )
        return tuple(map(str, parts))


def case_of(row: Row) -> Case:
    """The case of a row.

    Raises:
        Skipped: it cannot be priced; says why.
    """
    if FLAGS.search(row.notes):
        raise Skipped(Skip.FLAGGED)
    if OTHER_TECHNIQUES.search(row.text):
        raise Skipped(Skip.OTHER_TECHNIQUE)
    if row.precision in ("nvfp4", "int8"):
        raise Skipped(Skip.OTHER_ARITHMETIC)
    model, cluster = shape_of(row), cluster_of(row)
    layout = _layout(row, cluster.devices)
    micro_batch, global_batch = _batch(row, layout)
    workload = _workload(row, global_batch)
    stack = load_stack(first(STACKS, row.text, "torch"))
    candidate = Candidate(layout=layout, knobs=_knobs(row, layout, micro_batch, workload))
    seconds = _seconds(row, model, workload, cluster)
    memory = None if row.peak_mem_gib is None else row.peak_mem_gib * GIB
    if seconds is None and memory is None and not row.oom and "fits" not in row.notes:
        raise Skipped(Skip.MEASURED_NOTHING)
    return Case(
        row=row,
        model=model,
        cluster=cluster,
        workload=workload,
        stack=stack,
        candidate=candidate,
        accumulation=max(1, round(global_batch / (layout.data_ranks * micro_batch))),
        step_seconds=seconds,
        peak_memory_bytes=memory,
        reserved=row.mem_kind not in ("allocated", "active"),
        oom=bool(row.oom),
    )


def _layout(row: Row, devices: int) -> Layout:
    """ZeRO-0 replicates; what ZeRO-1 to 3 shard, FSDP2 shards, with other lives of the parameters (see ``_knobs``)."""
    tp, pp, cp = row.tp or 1, row.pp or 1, row.cp or 1
    if row.schedule and first(OFFLOAD, row.text, "none") == "streamed" and row.pp is None:
        return Layout(pp=devices)
    inner = tp * pp * cp
    if devices % inner or (row.tp is None and row.dp_shard is None):
        raise Skipped(Skip.NO_LAYOUT)
    shard, replicate = row.dp_shard, row.dp_replicate
    ranks = devices // inner
    if shard is None:
        shard = ranks // (replicate or 1) if row.zero_stage or replicate else 1
    if replicate is None:
        replicate = ranks // shard
    if replicate * shard * inner != devices:
        raise Skipped(Skip.NO_LAYOUT)
    if row.zero_stage == 0:
        replicate, shard = replicate * shard, 1
    elif row.zero_stage in (1, 2) and shard == 1:
        shard, replicate = replicate, 1
    return Layout(pp=pp, dp_replicate=replicate, dp_shard=shard, cp=cp, tp=tp, ep=row.ep or 1, etp=row.etp or 1)


def _batch(row: Row, layout: Layout) -> tuple[int, int]:
    """Micro-batch and global batch; of one that is not stated, what follows from the other without accumulation."""
    if row.seq_len is None or (row.micro_batch is None and row.global_batch is None):
        raise Skipped(Skip.NO_BATCH)
    ranks = layout.data_ranks
    if row.micro_batch is None:
        per_rank = max(1, (row.global_batch or 1) // ranks)
        return (1 if layout.pp > 1 else per_rank), row.global_batch or 1
    whole = row.micro_batch * ranks
    if row.global_batch is None:
        return row.micro_batch, whole * (layout.pp if layout.pp > 1 else 1)
    if row.global_batch < whole:
        raise Skipped(Skip.NO_BATCH)
    return row.micro_batch, row.global_batch


def _workload(row: Row, global_batch: int) -> Workload:
    precision = {"fp8": "bf16", "": "fp16" if "V100" in row.gpu else "bf16"}.get(row.precision, row.precision)
    if PURE_HALF.search(row.text):
        precision = "bf16-true"
    optimizer = next((name for word, name in OPTIMIZERS.items() if word in row.optimizer.lower()), "adamw")
    return Workload(
        seq_len=row.seq_len or 1,
        global_batch=global_batch,
        precision=precision,
        optimizer=optimizer,
        train=first(TRAIN, f"{row.row_id} {row.text}", "full"),
    )


def _knobs(row: Row, layout: Layout, micro_batch: int, workload: Workload) -> Knobs:
    """ZeRO-2 keeps gathered parameters; ZeRO-1, like any pipeline, also unsharded gradients until the last micro-batch."""
    offload = first(OFFLOAD, row.text, "none")
    late = row.zero_stage in (0, 1) or layout.pp > 1
    virtual = row.vpp or 1
    schedule = next((name for word, name in SCHEDULES.items() if word in row.schedule.lower()), "1f1b")
    if virtual > 1 or "interleaved" in row.schedule.lower():
        schedule, virtual = "interleaved_1f1b", max(virtual, 2)
    if offload == "streamed":
        schedule = "gpipe"
    return Knobs(
        micro_batch=micro_batch,
        recompute=RECOMPUTE.get(row.ac_mode, "none"),
        reshard_after_forward=row.zero_stage == 3 or layout.fsdp_ranks == 1,
        sequence_parallel=layout.tp > 1 and row.sp != 0,
        loss_parallel=layout.tp > 1,
        postpone_gradient_sync=late,
        offload=offload,
        pp_schedule=schedule,
        pp_virtual_stages=virtual if layout.pp > 1 else 1,
        compile=bool(row.compile),
        float8="tensorwise" if row.precision == "fp8" else "none",
    )


def _seconds(row: Row, model: ModelShape, workload: Workload, cluster: Cluster) -> float | None:
    """Step seconds as published, else from tokens/s, else from the share of the peak that the model's FLOPs reached."""
    if row.step_time_s:
        return row.step_time_s
    tokens = workload.tokens_per_step
    if row.tokens_per_s_per_gpu:
        return tokens / (row.tokens_per_s_per_gpu * cluster.devices)
    flops = model_flops_per_token(model, workload) * tokens
    if row.mfu:
        return flops / (row.mfu * cluster.device.peak(workload.precision) * cluster.devices)
    if not row.tflops_per_gpu:
        return None
    again = 4 / 3 if row.ac_mode == "full" and HARDWARE_FLOPS.search(row.notes) else 1.0
    return again * flops / (row.tflops_per_gpu * 1e12 * cluster.devices)
