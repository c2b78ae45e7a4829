"""Setup of a published run: layout, batch, workload, knobs and stack, from its columns and notes.

Missing values are inferred by fixed rules. If all degrees are 1, the layers are distributed over all GPUs. Without a micro-batch
size, it is one sequence in a pipeline whose framework has no default, otherwise all sequences of a rank. Without a batch size,
each rank has one sequence, and a pipeline one micro-batch per stage.
"""

from strategist.accuracy.row import Row
from strategist.accuracy.row_stack import recompute_mode, recomputes_feed_forward
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.accuracy.text_columns import (
    ACCUMULATION,
    ACTIVATION_OFFLOAD,
    ACTUAL_BATCH,
    ASYNC_OPTIMIZER,
    BF16_REDUCE,
    DEFAULT_SAVED_OPERATIONS,
    DOCUMENT_TOKENS,
    EP_OVERLAP,
    FP32_REDUCE_STACKS,
    GATHERED_LOGITS_STACKS,
    GATHERED_PIPELINE_STACKS,
    HALF_REDUCE_STACKS,
    INTERLEAVED,
    LORA_RANK,
    MASTER_WEIGHT_OFFLOAD,
    MICRO_BATCH_PER_STAGE,
    MICRO_BATCHES,
    NO_SYNC,
    OFFLOAD,
    OPTIMIZER_IN_BACKWARD,
    OPTIMIZERS,
    PRECISION_WORDS,
    PURE_BF16,
    RECOMPUTED_EXCHANGES,
    RESIDUAL_OFFLOAD,
    SEQUENCE_PARALLEL_STACKS,
    SHARDS_GRADIENTS,
    SHARDS_WEIGHTS,
    STATED_SEQ_LEN,
    TP_TIMES_PP,
    TRAIN_MODES,
    TRAINED_PARAMETERS,
    TWO_LAYER_STAGE_STACKS,
    last_number,
    matched_value,
    stack_name,
    without_parentheses,
)
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.model_states import lora_parameters
from strategist.frozen import frozen

SCHEDULES = {"gpipe": "gpipe", "zero bubble": "zbv_zero_bubble", "dualpipe": "dual_pipe_v"}

OPTIMIZER_SHARDING_STACKS = ONE_SEQUENCE_STACKS = ("nemo",)
"""Stacks whose recipes shard optimizer states over data-parallel ranks (``use_distributed_optimizer``) and use one sequence as a
micro-batch, unless a run says otherwise (NeMo-Framework-Launcher: conf/training/llama/llama2_7b.yaml).
"""

MAX_TENSOR_PARALLEL = 8
"""Maximum tp if only the product of tp and pp is stated: tensor parallelism fills a node first (arXiv 2104.04473)."""


@frozen
class Batch:
    """Batch of a run.

    micro_batch: sequences of a micro-batch.
    global_batch: sequences of a step.
    stated: neither ``global_batch`` nor ``seq_len`` is inferred.
    """

    seq_len: int
    micro_batch: int
    global_batch: int
    accumulation: int
    stated: bool


def is_round_robin(row: Row, devices: int) -> bool:
    """Whether the layers are distributed over several GPUs without any parallelism: all degrees are stated as 1."""
    data = {row.dp_shard, row.dp_replicate} - {None}
    return devices > 1 and data == {1} and (row.tp, row.pp, row.cp or 1) == (1, 1, 1)


def zero_stage(row: Row) -> int | None:
    """The ZeRO stage as stated, otherwise that of the framework's recipes; None if neither is known."""
    if row.zero_stage is None and stack_name(row.text) in OPTIMIZER_SHARDING_STACKS:
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
    if tp is None and (product := last_number(TP_TIMES_PP, row.notes)):
        tp = max(1, min(int(product), MAX_TENSOR_PARALLEL))
        pp = int(product) // tp
    if tp is None or (row.n_gpus is None and row.dp_shard is None and row.dp_replicate is None):
        raise Skipped(SkipReason.NO_LAYOUT)
    inner = tp * (pp or 1) * cp
    if devices % inner:
        raise Skipped(SkipReason.NO_LAYOUT)
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
        raise Skipped(SkipReason.NO_LAYOUT)
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
    seq_len = row.seq_len or int(last_number(STATED_SEQ_LEN, row.notes) or 0)
    ranks, accumulation = layout.data_ranks, last_number(ACCUMULATION, row.notes)
    global_batch = int(last_number(ACTUAL_BATCH, row.notes) or row.global_batch or 0)
    if not seq_len or not (global_batch or row.micro_batch or row.tp):
        raise Skipped(SkipReason.NO_BATCH)
    if is_round_robin(row, devices):  # one micro-batch passes through at a time, also with gradient accumulation
        micro_batch = row.micro_batch or 1
        return Batch(seq_len=seq_len, micro_batch=micro_batch, global_batch=micro_batch, accumulation=1, stated=False)
    micro_batch = row.micro_batch or 0
    default_micro_batches = layout.pp if MICRO_BATCH_PER_STAGE.search(row.notes) else None
    if not micro_batch and global_batch and (micro_batches := last_number(MICRO_BATCHES, row.notes) or default_micro_batches):
        micro_batch = max(1, round(global_batch / (ranks * micro_batches * (accumulation or 1))))
    if not micro_batch:
        one_sequence = layout.pp > 1 or stack_name(row.text) in ONE_SEQUENCE_STACKS
        micro_batch = 1 if one_sequence or not global_batch else max(1, global_batch // ranks)
    stated = row.seq_len is not None and bool(global_batch or (row.micro_batch and accumulation))
    global_batch = global_batch or int(micro_batch * ranks * (accumulation or layout.pp))
    if global_batch < micro_batch * ranks:
        raise Skipped(SkipReason.NO_BATCH)
    return Batch(
        seq_len=seq_len,
        micro_batch=micro_batch,
        global_batch=global_batch,
        accumulation=max(1, round(global_batch / (ranks * micro_batch))),
        stated=stated,
    )


def workload_of(row: Row, model: ModelShape, batch: Batch, stack: Stack) -> Workload:
    """The workload: what is trained, and in which precision."""
    default_precision = matched_value(PRECISION_WORDS, row.notes, "fp16" if "V100" in row.gpu else "bf16")
    precision = {"fp8": "bf16", "": default_precision}.get(row.precision, row.precision)
    if precision == "bf16" and PURE_BF16.search(row.text):
        precision = "bf16-true"
    train = matched_value(TRAIN_MODES, f"{row.row_id} ; {row.model} ; {without_parentheses(row.notes)} ;", "full")
    return Workload(
        seq_len=batch.seq_len,
        global_batch=batch.global_batch,
        precision=precision,
        optimizer=matched_value(
            OPTIMIZERS, row.optimizer or row.settings.get("optimizer") or without_parentheses(row.notes), "adamw"
        ),
        train=train,
        lora_rank=_lora_rank(row, model, stack) if train != "full" else Workload.lora_rank,
        document_tokens=int(last_number(DOCUMENT_TOKENS, row.notes) or 0),
    )


def _lora_rank(row: Row, model: ModelShape, stack: Stack) -> int:
    """LoRA rank as stated, or computed from the stated number of trained parameters."""
    if trained_parameters := last_number(TRAINED_PARAMETERS, row.notes):
        return max(1, round(trained_parameters / lora_parameters(model, 1, stack.adapters)))
    return int(last_number(LORA_RANK, row.text) or Workload.lora_rank)


def knobs_of(row: Row, layout: Layout, batch: Batch, stack: Stack) -> Knobs:
    """The knobs of a run. ZeRO-2 keeps parameters gathered; ZeRO-1 and pipelines also keep unsharded gradients until the last
    micro-batch.
    """
    offload = offload_of(row)
    schedule, virtual_stages = _schedule(row, offload, layout.pp, stack)
    recompute = {"core_attention": "none", "": "none"}.get(stated_mode := recompute_mode(row), stated_mode)
    sequence_parallel = layout.tp > 1 and (bool(row.sp) if row.sp is not None else stack.name in SEQUENCE_PARALLEL_STACKS)
    shards_weights_only = bool(SHARDS_WEIGHTS.search(row.notes)) and not SHARDS_GRADIENTS.search(row.notes)
    reduces_in_half = stack.gradient_bytes <= 2 and stack.name not in FP32_REDUCE_STACKS
    reduces_in_half = (
        reduces_in_half or (zero_stage(row) == 3 and stack.name in HALF_REDUCE_STACKS) or bool(PURE_BF16.search(row.text))
    )
    return Knobs(
        micro_batch=batch.micro_batch,
        recompute=recompute,
        saved_operations=RECOMPUTED_EXCHANGES if recomputes_feed_forward(row) else DEFAULT_SAVED_OPERATIONS,
        reshard_after_forward=_reshards(row, layout, stack),
        sequence_parallel=sequence_parallel,
        loss_parallel=layout.tp > 1 and stack.name not in GATHERED_LOGITS_STACKS,
        reduce_dtype="bf16" if reduces_in_half or BF16_REDUCE.search(row.notes) else "fp32",
        no_sync=zero_stage(row) in (0, 1) or layout.pp > 1 or bool(NO_SYNC.search(row.notes)) or shards_weights_only,
        offload=offload,
        pp_schedule=schedule,
        pp_virtual_stages=virtual_stages if layout.pp > 1 else 1,
        compile=bool(row.compile),
        float8=_float8(row),
        float8_all_gather="fp8_param_gather" in row.settings and layout.fsdp_ranks > 1,
        async_optimizer_step=offload == "streamed" and bool(ASYNC_OPTIMIZER.search(row.text)),
        activation_offload=bool(
            ACTIVATION_OFFLOAD.search(row.notes) or (recompute == "full" and RESIDUAL_OFFLOAD.search(row.notes))
        ),
        optimizer_in_backward=bool(OPTIMIZER_IN_BACKWARD.search(without_parentheses(row.text))),
        ep_overlap=layout.ep > 1 and bool(EP_OVERLAP.search(row.notes) or "dualpipe" in row.schedule.lower()),
    )


def _reshards(row: Row, layout: Layout, stack: Stack) -> bool:
    """Whether parameters are gathered for each layer and resharded after it."""
    if SHARDS_WEIGHTS.search(row.notes):
        return True
    if layout.fsdp_ranks == 1:
        return not MASTER_WEIGHT_OFFLOAD.search(row.notes)
    return zero_stage(row) == 3 and not (layout.pp > 1 and stack.name in GATHERED_PIPELINE_STACKS)


def offload_of(row: Row) -> str:
    """Which model states are in host memory."""
    if MASTER_WEIGHT_OFFLOAD.search(row.notes):
        return "all" if row.precision == "fp8" or SHARDS_WEIGHTS.search(row.notes) else "optimizer"
    return matched_value(OFFLOAD, row.text, "none")


def _float8(row: Row) -> str:
    if row.precision != "fp8":
        return "none"
    return "rowwise" if "rowwise" in row.fp8_recipe else "tensorwise"


def _schedule(row: Row, offload: str, pp: int, stack: Stack) -> tuple[str, int]:
    """The pipeline schedule, and the number of stages per rank.

    If only the schedule is stated, torchtitan has two stages per rank, and Megatron stages of two layers: the median of NVIDIA's
    own recipes is two to four layers, and Llama 3 has one.
    """
    virtual_stages = row.vpp or 1
    if offload == "streamed":
        return "gpipe", 1
    if virtual_stages > 1:
        return "interleaved_1f1b", virtual_stages
    if "interleaved" in row.schedule.lower() or (
        pp > 1 and row.vpp is None and (INTERLEAVED.search(row.notes) or EP_OVERLAP.search(row.notes))
    ):
        stages_per_rank = round((row.layers or 0) / pp / 2) if stack.name in TWO_LAYER_STAGE_STACKS else 2
        return "interleaved_1f1b", max(stages_per_rank, 2)
    schedule = next((name for word, name in SCHEDULES.items() if word in row.schedule.lower()), "1f1b")
    return schedule, 2 if schedule in ("zbv_zero_bubble", "dual_pipe_v") else 1
