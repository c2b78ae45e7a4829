"""Setup of a published run: layout, batch, workload, knobs and stack, from its columns and notes.

Missing values are inferred by fixed rules: layers dealt over all GPUs where no degree uses them; a micro-batch of one sequence in a
pipeline where its framework has no default, else all that a rank has; one sequence a rank where no batch is stated, and one
micro-batch a stage in a pipeline.
"""

from dataclasses import dataclass

from strategist.accuracy.row import Row
from strategist.accuracy.row_stack import recomputed
from strategist.accuracy.skip_reason import Skip, Skipped
from strategist.accuracy.text_columns import (
    ACCUMULATION,
    ACTIVATIONS_AWAY,
    CUTS_IN_PAIRS,
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
    PRECISION_TOLD,
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

SHARDS_OPTIMIZER = ONE_SEQUENCE = ("nemo",)
"""Stacks whose recipes shard optimizer states over data-parallel ranks (``use_distributed_optimizer``) and
take one sequence as a micro-batch, unless a run says otherwise (NeMo-Framework-Launcher: conf/training/llama/llama2_7b.yaml)."""

WIDEST_TENSOR_PARALLEL = 8
"""Where only the product of tensor and pipeline degrees is stated: tensor parallelism fills a node first (arXiv 2104.04473)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sequences of a micro-batch and of a step; ``stated`` says that neither the step's number nor their length is a guess."""

    seq_len: int
    micro: int
    whole: int
    accumulation: int
    stated: bool


def is_round_robin(row: Row, devices: int) -> bool:
    """Whether the layers lie on the GPUs in turn, without any parallelism: all degrees are stated as 1, and there are more GPUs."""
    data = {row.dp_shard, row.dp_replicate} - {None}
    return devices > 1 and data == {1} and (row.tp, row.pp, row.cp or 1) == (1, 1, 1)


def zero_stage(row: Row) -> int | None:
    """As stated, else as the recipes of the row's framework have it."""
    if row.zero_stage is None and first(STACKS, row.text, "torch") in SHARDS_OPTIMIZER:
        return 1
    if SHARDS_WEIGHTS.search(row.notes) and SHARDS_GRADIENTS.search(row.notes):
        return 3
    return row.zero_stage


def layout_of(row: Row, devices: int) -> Layout:
    """ZeRO-0 replicates; what ZeRO-1 to 3 shard, FSDP2 shards, with other lives of the parameters (see ``knobs_of``).

    Raises:
        Skipped: the degrees are not stated, or do not make up the GPUs.
    """
    if is_round_robin(row, devices) or (row.pp is None and offload_of(row) == "streamed"):
        return Layout(pp=devices)
    tp, pp, cp = row.tp, row.pp, row.cp or 1
    if tp is None and (product := number(MODEL_RANKS, row.notes)):
        tp = max(1, min(int(product), WIDEST_TENSOR_PARALLEL))
        pp = int(product) // tp
    if tp is None or (row.n_gpus is None and row.dp_shard is None and row.dp_replicate is None):
        raise Skipped(Skip.NO_LAYOUT)
    inner = tp * (pp or 1) * cp
    if devices % inner:
        raise Skipped(Skip.NO_LAYOUT)
    replicate, shard = _data_ranks(row, devices // inner)
    return Layout(pp=pp or 1, dp_replicate=replicate, dp_shard=shard, cp=cp, tp=tp, ep=row.ep or 1, etp=row.etp or 1)


def _data_ranks(row: Row, ranks: int) -> tuple[int, int]:
    """Replicas and shards; of one that is not stated, what the ranks leave."""
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
    """The batch as stated, or what follows from what is.

    Raises:
        Skipped: no sequence length is stated, no batch of a layout that isn't either, or fewer sequences than ranks.
    """
    seq_len = row.seq_len or int(number(SEQUENCE, row.notes) or 0)
    ranks, told = layout.data_ranks, number(ACCUMULATION, row.notes)
    whole = int(number(RAN_BATCH, row.notes) or row.global_batch or 0)
    if not seq_len or not (whole or row.micro_batch or row.tp):
        raise Skipped(Skip.NO_BATCH)
    if is_round_robin(row, devices):  # one micro-batch goes through at a time; those that accumulate follow it
        micro = row.micro_batch or 1
        return Batch(seq_len=seq_len, micro=micro, whole=micro, accumulation=1, stated=False)
    micro = row.micro_batch or 0
    by_default = layout.pp if MICRO_BATCH_A_STAGE.search(row.notes) else None
    if not micro and whole and (pieces := number(MICRO_BATCHES, row.notes) or by_default):
        micro = max(1, round(whole / (ranks * pieces * (told or 1))))
    if not micro:
        one = layout.pp > 1 or first(STACKS, row.text, "torch") in ONE_SEQUENCE
        micro = 1 if one or not whole else max(1, whole // ranks)
    stated = row.seq_len is not None and bool(whole or (row.micro_batch and told))
    whole = whole or int(micro * ranks * (told or layout.pp))
    if whole < micro * ranks:
        raise Skipped(Skip.NO_BATCH)
    return Batch(seq_len=seq_len, micro=micro, whole=whole, accumulation=max(1, round(whole / (ranks * micro))), stated=stated)


def workload_of(row: Row, model: ModelShape, batch: Batch, stack: Stack) -> Workload:
    """What is trained, in which arithmetic."""
    unsaid = first(PRECISION_TOLD, row.notes, "fp16" if "V100" in row.gpu else "bf16")
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
        lora_rank=_rank(row, model, stack) if train != "full" else Workload.lora_rank,
    )


def _rank(row: Row, model: ModelShape, stack: Stack) -> int:
    """As stated, or that at which the stack's adapters have the stated number of trained parameters."""
    if trained := number(TRAINED, row.notes):
        return max(1, round(trained / lora_parameters(model, 1, stack.adapters)))
    return int(number(RANKS, row.text) or Workload.lora_rank)


def knobs_of(row: Row, layout: Layout, batch: Batch, stack: Stack) -> Knobs:
    """ZeRO-2 keeps gathered parameters; ZeRO-1 keeps unsharded gradients until the last micro-batch, too, as pipelines do."""
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
    )


def _reshards(row: Row, layout: Layout, stack: Stack) -> bool:
    """Whether parameters are gathered for each layer's turn alone."""
    if SHARDS_WEIGHTS.search(row.notes):
        return True
    if layout.fsdp_ranks == 1:
        return not MASTER_AWAY.search(row.notes)
    return zero_stage(row) == 3 and not (layout.pp > 1 and stack.name in HOLDS_IN_PIPELINES)


def offload_of(row: Row) -> str:
    """What lies in the memory of the host."""
    if MASTER_AWAY.search(row.notes):
        return "all" if row.precision == "fp8" or SHARDS_WEIGHTS.search(row.notes) else "optimizer"
    return first(OFFLOAD, row.text, "none")


def _float8(row: Row) -> str:
    if row.precision != "fp8":
        return "none"
    return "rowwise" if "rowwise" in row.fp8_recipe else "tensorwise"


def _schedule(row: Row, offload: str, pp: int, stack: Stack) -> tuple[str, int]:
    """The pipeline's schedule and a rank's stages. Where only the schedule is given, torchtitan cuts a rank's layers in two, and
    Megatron's into stages of two layers: the median of NVIDIA's own recipes is two to four, and Llama 3 has one."""
    virtual = row.vpp or 1
    if offload == "streamed":
        return "gpipe", 1
    if virtual > 1:
        return "interleaved_1f1b", virtual
    if "interleaved" in row.schedule.lower() or (pp > 1 and row.vpp is None and INTERLEAVED.search(row.notes)):
        several = round((row.layers or 0) / pp / 2) if stack.name in CUTS_IN_PAIRS else 2
        return "interleaved_1f1b", max(several, 2)
    schedule = next((name for word, name in SCHEDULES.items() if word in row.schedule.lower()), "1f1b")
    return schedule, 2 if schedule in ("zbv_zero_bubble", "dual_pipe_v") else 1
