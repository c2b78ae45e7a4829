"""Setup of a published run: layout, batch, workload, knobs and stack, from its columns and notes.

Missing values are inferred by fixed rules. If all degrees are 1, the layers are distributed over all GPUs. Without a micro-batch
size, it is one sequence in a pipeline whose framework has no default, otherwise all sequences of a rank. Without a batch size,
each rank has one sequence, and a pipeline one micro-batch per stage.
"""

from dataclasses import dataclass

from strategist.accuracy.row import Row
from strategist.accuracy.row_stack import recomputed
from strategist.accuracy.skip_reason import Skip, Skipped
from strategist.accuracy.text_columns import (
    ACCUMULATION,
    ACTIVATIONS_AWAY,
    CUTS_IN_PAIRS,
    EP_OVERLAP,
    GATHERS_LOGITS,
    HALF_REDUCE,
    HOLDS_IN_PIPELINES,
    IN_BACKWARD,
    INTERLEAVED,
    LATER_UPDATE,
    MASTER_AWAY,
    MICRO_BATCH_A_STAGE,
    MICRO_BATCHES,
    MODEL_RANKS,
    NO_SYNC,
    OFFLOAD,
    OPTIMIZERS,
    PRECISION_WORDS,
    PURE_HALF,
    RAN_BATCH,
    RANKS,
    REDUCES_SHARDS_IN_HALF,
    RESIDUAL_AWAY,
    SAVED_USUALLY,
    SEQUENCE,
    SHARDS_GRADIENTS,
    SHARDS_WEIGHTS,
    SPLITS_SEQUENCE,
    STACKS,
    SUMS_IN_FLOAT32,
    TRAIN,
    TRAINED,
    first,
    number,
    plain,
)
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.model_states import lora_parameters

SCHEDULES = {"gpipe": "gpipe", "zero bubble": "zbv_zero_bubble", "dualpipe": "dual_pipe_v"}

OPTIMIZER_SHARDING_STACKS = ONE_SEQUENCE = ("nemo",)
"""Stacks whose recipes shard optimizer states over data-parallel ranks (``use_distributed_optimizer``) and use one sequence as a
micro-batch, unless a run says otherwise (NeMo-Framework-Launcher: conf/training/llama/llama2_7b.yaml).
"""

MAX_TENSOR_PARALLEL = 8
"""Maximum tp if only the product of tp and pp is stated: tensor parallelism fills a node first (arXiv 2104.04473)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Batch of a run.

    micro: sequences of a micro-batch.
    whole: sequences of a step.
    stated: neither ``whole`` nor ``seq_len`` is inferred.
    """

    seq_len: int
    micro: int
    whole: int
    accumulation: int
    stated: bool


def is_round_robin(row: Row, devices: int) -> bool:
    """Whether the layers are distributed over several GPUs without any parallelism: all degrees are stated as 1."""
    data = {row.dp_shard, row.dp_replicate} - {None}
    return devices > 1 and data == {1} and (row.tp, row.pp, row.cp or 1) == (1, 1, 1)


def zero_stage(row: Row) -> int | None:
    """The ZeRO stage as stated, otherwise that of the framework's recipes; None if neither is known."""
    if row.zero_stage is None and first(STACKS, row.text, "torch") in OPTIMIZER_SHARDING_STACKS:
        return 1
    if SHARDS_WEIGHTS.search(row.notes) and SHARDS_GRADIENTS.search(row.notes):
        return 3
    return row.zero_stage


def layout_of(row: Row, devices: int) -> Layout:
    """The layout of a run. ZeRO-0 replicates; ZeRO-1 to 3 become FSDP2 shards, which differ in how long parameters stay gathered
    (see ``knobs_of``).

    Raises:
        Skipped: the degrees are not stated, or do not multiply to the number of GPUs.
    """
    if is_round_robin(row, devices) or (row.pp is None and offload_of(row) == "streamed"):
        return Layout(pp=devices)
    tp, pp, cp = row.tp, row.pp, row.cp or 1
    if tp is None and (product := number(MODEL_RANKS, row.notes)):
        tp = max(1, min(int(product), MAX_TENSOR_PARALLEL))
        pp = int(product) // tp
    if tp is None or (row.n_gpus is None and row.dp_shard is None and row.dp_replicate is None):
        raise Skipped(Skip.NO_LAYOUT)
    inner = tp * (pp or 1) * cp
    if devices % inner:
        raise Skipped(Skip.NO_LAYOUT)
    replicate, shard = _data_ranks(row, devices // inner)
    return Layout(pp=pp or 1, dp_replicate=replicate, dp_shard=shard, cp=cp, tp=tp, ep=row.ep or 1, etp=row.etp or 1)


def _data_ranks(row: Row, ranks: int) -> tuple[int, int]:
    """Replicas and shards; a degree that is not stated is inferred from the number of ranks."""
    shard, replicate = row.dp_shard, row.dp_replicate
    if shard is None:
        shard = ranks // (replicate or 1) if zero_stage(row) or replicate else 1
    if replicate is None:
        replicate = ranks // shard
    if replicate * shard != ranks:
        raise Skipped(Skip.NO_LAYOUT)
    if zero_stage(row) == 0:
        return ranks, 1
    if zero_stage(row) in (1, 2) and shard == 1:
        return 1, replicate
    return replicate, shard


def batch_of(row: Row, layout: Layout, devices: int) -> Batch:
    """The batch as stated, or as inferred from what is stated.

    Raises:
        Skipped: the sequence length is not stated, neither batch nor layout is stated, or there are fewer sequences than ranks.
    """
    seq_len = row.seq_len or int(number(SEQUENCE, row.notes) or 0)
    ranks, accumulation = layout.data_ranks, number(ACCUMULATION, row.notes)
    whole = int(number(RAN_BATCH, row.notes) or row.global_batch or 0)
    if not seq_len or not (whole or row.micro_batch or row.tp):
        raise Skipped(Skip.NO_BATCH)
    if is_round_robin(row, devices):  # one micro-batch passes through at a time, also with gradient accumulation
        micro = row.micro_batch or 1
        return Batch(seq_len=seq_len, micro=micro, whole=micro, accumulation=1, stated=False)
    micro = row.micro_batch or 0
    by_default = layout.pp if MICRO_BATCH_A_STAGE.search(row.notes) else None
    if not micro and whole and (pieces := number(MICRO_BATCHES, row.notes) or by_default):
        micro = max(1, round(whole / (ranks * pieces * (accumulation or 1))))
    if not micro:
        one = layout.pp > 1 or first(STACKS, row.text, "torch") in ONE_SEQUENCE
        micro = 1 if one or not whole else max(1, whole // ranks)
    stated = row.seq_len is not None and bool(whole or (row.micro_batch and accumulation))
    whole = whole or int(micro * ranks * (accumulation or layout.pp))
    if whole < micro * ranks:
        raise Skipped(Skip.NO_BATCH)
    return Batch(seq_len=seq_len, micro=micro, whole=whole, accumulation=max(1, round(whole / (ranks * micro))), stated=stated)


def workload_of(row: Row, model: ModelShape, batch: Batch, stack: Stack) -> Workload:
    """The workload: what is trained, and in which precision."""
    unsaid = first(PRECISION_WORDS, row.notes, "fp16" if "V100" in row.gpu else "bf16")
    precision = {"fp8": "bf16", "": unsaid}.get(row.precision, row.precision)
    if precision == "bf16" and PURE_HALF.search(row.text):
        precision = "bf16-true"
    train = first(TRAIN, f"{row.row_id} ; {row.model} ; {plain(row.notes)} ;", "full")
    return Workload(
        seq_len=batch.seq_len,
        global_batch=batch.whole,
        precision=precision,
        optimizer=first(OPTIMIZERS, row.optimizer or row.settings.get("optimizer") or plain(row.notes), "adamw"),
        train=train,
        lora_rank=_lora_rank(row, model, stack) if train != "full" else Workload.lora_rank,
    )


def _lora_rank(row: Row, model: ModelShape, stack: Stack) -> int:
    """LoRA rank as stated, or computed from the stated number of trained parameters."""
    if trained := number(TRAINED, row.notes):
        return max(1, round(trained / lora_parameters(model, 1, stack.adapters)))
    return int(number(RANKS, row.text) or Workload.lora_rank)


def knobs_of(row: Row, layout: Layout, batch: Batch, stack: Stack) -> Knobs:
    """The knobs of a run. ZeRO-2 keeps parameters gathered; ZeRO-1 and pipelines also keep unsharded gradients until the last
    micro-batch.
    """
    offload = offload_of(row)
    schedule, virtual = _schedule(row, offload, layout.pp, stack)
    recompute = {"core_attention": "none", "": "none"}.get(mode := recomputed(row), mode)
    split = layout.tp > 1 and (bool(row.sp) if row.sp is not None else stack.name in SPLITS_SEQUENCE)
    weights_alone = bool(SHARDS_WEIGHTS.search(row.notes)) and not SHARDS_GRADIENTS.search(row.notes)
    half = stack.gradient_bytes <= 2 and stack.name not in SUMS_IN_FLOAT32
    half = half or (zero_stage(row) == 3 and stack.name in REDUCES_SHARDS_IN_HALF) or bool(PURE_HALF.search(row.text))
    return Knobs(
        micro_batch=batch.micro,
        recompute=recompute,
        saved_operations=SAVED_USUALLY,
        reshard_after_forward=_reshards(row, layout, stack),
        sequence_parallel=split,
        loss_parallel=layout.tp > 1 and stack.name not in GATHERS_LOGITS,
        reduce_dtype="bf16" if half or HALF_REDUCE.search(row.notes) else "fp32",
        no_sync=zero_stage(row) in (0, 1) or layout.pp > 1 or bool(NO_SYNC.search(row.notes)) or weights_alone,
        offload=offload,
        pp_schedule=schedule,
        pp_virtual_stages=virtual if layout.pp > 1 else 1,
        compile=bool(row.compile),
        float8=_float8(row),
        float8_all_gather="fp8_param_gather" in row.settings and layout.fsdp_ranks > 1,
        async_optimizer_step=offload == "streamed" and bool(LATER_UPDATE.search(row.text)),
        activation_offload=bool(ACTIVATIONS_AWAY.search(row.notes) or (recompute == "full" and RESIDUAL_AWAY.search(row.notes))),
        optimizer_in_backward=bool(IN_BACKWARD.search(plain(row.text))),
        ep_overlap=layout.ep > 1 and bool(EP_OVERLAP.search(row.notes) or "dualpipe" in row.schedule.lower()),
    )


def _reshards(row: Row, layout: Layout, stack: Stack) -> bool:
    """Whether parameters are gathered for each layer and resharded after it."""
    if SHARDS_WEIGHTS.search(row.notes):
        return True
    if layout.fsdp_ranks == 1:
        return not MASTER_AWAY.search(row.notes)
    return zero_stage(row) == 3 and not (layout.pp > 1 and stack.name in HOLDS_IN_PIPELINES)


def offload_of(row: Row) -> str:
    """Which model states are in host memory."""
    if MASTER_AWAY.search(row.notes):
        return "all" if row.precision == "fp8" or SHARDS_WEIGHTS.search(row.notes) else "optimizer"
    return first(OFFLOAD, row.text, "none")


def _float8(row: Row) -> str:
    if row.precision != "fp8":
        return "none"
    return "rowwise" if "rowwise" in row.fp8_recipe else "tensorwise"


def _schedule(row: Row, offload: str, pp: int, stack: Stack) -> tuple[str, int]:
    """The pipeline schedule, and the number of stages per rank.

    If only the schedule is stated, torchtitan has two stages per rank, and Megatron stages of two layers: the median of NVIDIA's
    own recipes is two to four layers, and Llama 3 has one.
    """
    virtual = row.vpp or 1
    if offload == "streamed":
        return "gpipe", 1
    if virtual > 1:
        return "interleaved_1f1b", virtual
    if "interleaved" in row.schedule.lower() or (
        pp > 1 and row.vpp is None and (INTERLEAVED.search(row.notes) or EP_OVERLAP.search(row.notes))
    ):
        several = round((row.layers or 0) / pp / 2) if stack.name in CUTS_IN_PAIRS else 2
        return "interleaved_1f1b", max(several, 2)
    schedule = next((name for word, name in SCHEDULES.items() if word in row.schedule.lower()), "1f1b")
    return schedule, 2 if schedule in ("zbv_zero_bubble", "dual_pipe_v") else 1
