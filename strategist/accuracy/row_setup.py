"""Setup of a published run: layout, batch, workload, knobs and stack, from its columns and notes.

Missing values are inferred by fixed rules: layers dealt over all GPUs where no degree uses them; a micro-batch of one sequence in a
pipeline where its framework has no default, else all that a rank has; one sequence a rank where no batch is stated, and one
micro-batch a stage in a pipeline.
"""

from dataclasses import dataclass, replace
from math import ceil, log2

from strategist.accuracy.row import Row
from strategist.accuracy.skip_reason import Skip, Skipped
from strategist.accuracy.text_columns import (
    ACCUMULATION,
    ACTIVATIONS_AWAY,
    ATTENTION,
    ATTENTION_TOLD,
    CHUNKED_LOSS,
    CUTS_IN_PAIRS,
    FP16_SUMS,
    FUSED,
    FUSED_LOSS,
    GATHERS_LOGITS,
    GRAPHS,
    HALF_GRADIENTS,
    HALF_LOGIT_BYTES,
    HALF_REDUCE,
    HEAD_CHUNKS,
    HOLDS_IN_PIPELINES,
    IN_BACKWARD,
    INTERLEAVED,
    LATER_UPDATE,
    LOSS_CHUNKS,
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
    RECOMPUTE,
    RECOMPUTE_TOLD,
    RECOMPUTE_USUAL,
    RECOMPUTED_MODULES,
    REDUCES_SHARDS_IN_HALF,
    SAVED_USUALLY,
    SEQUENCE,
    SPLITS_SEQUENCE,
    STACKS,
    SUMS_IN_FLOAT32,
    TILE_TOKENS,
    TILED,
    TRAIN,
    TRAINED,
    TUNED_ATTENTION,
    USUAL_LOSS_CHUNKS,
    USUAL_TILE_TOKENS,
    WHOLE_GRADIENTS,
    WHOLE_LOSS,
    first,
    number,
    plain,
)
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.loss import Loss
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.model_states import lora_parameters
from strategist.profiles.stacks import load_stack

SCHEDULES = {"gpipe": "gpipe", "zero bubble": "zbv_zero_bubble", "dualpipe": "dual_pipe_v"}
USUAL_VOCABULARY, USUAL_HIDDEN = 128256, 4096
"""Where a row with a fused loss states neither."""

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


def is_dealt(row: Row, devices: int) -> bool:
    """Whether the layers lie on the GPUs in turn, without any parallelism: all degrees are stated as 1, and there are more GPUs."""
    data = {row.dp_shard, row.dp_replicate} - {None}
    return devices > 1 and data == {1} and (row.tp, row.pp, row.cp or 1) == (1, 1, 1)


def layout_of(row: Row, devices: int) -> Layout:
    """ZeRO-0 replicates; what ZeRO-1 to 3 shard, FSDP2 shards, with other lives of the parameters (see ``knobs_of``).

    Raises:
        Skipped: the degrees are not stated, or do not make up the GPUs.
    """
    if is_dealt(row, devices) or (row.pp is None and offload_of(row) == "streamed"):
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
        shard = ranks // (replicate or 1) if row.zero_stage or replicate else 1
    if replicate is None:
        replicate = ranks // shard
    if replicate * shard != ranks:
        raise Skipped(Skip.NO_LAYOUT)
    if row.zero_stage == 0:
        return ranks, 1
    if row.zero_stage in (1, 2) and shard == 1:
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
    if is_dealt(row, devices):  # one micro-batch goes through at a time; those that accumulate follow it
        micro = row.micro_batch or 1
        return Batch(seq_len=seq_len, micro=micro, whole=micro, accumulation=1, stated=False)
    micro = row.micro_batch or 0
    by_default = layout.pp if MICRO_BATCH_A_STAGE.search(row.notes) else None
    if not micro and whole and (pieces := number(MICRO_BATCHES, row.notes) or by_default):
        micro = max(1, round(whole / (ranks * pieces * (told or 1))))
    if not micro:
        micro = max(1, whole // ranks) if whole and layout.pp == 1 else 1
    stated = row.seq_len is not None and bool(whole or (row.micro_batch and told))
    whole = whole or int(micro * ranks * (told or layout.pp))
    if whole < micro * ranks:
        raise Skipped(Skip.NO_BATCH)
    return Batch(seq_len=seq_len, micro=micro, whole=whole, accumulation=max(1, round(whole / (ranks * micro))), stated=stated)


def workload_of(row: Row, model: ModelShape, batch: Batch) -> Workload:
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
        lora_rank=_rank(row, model) if train != "full" else Workload.lora_rank,
    )


def _rank(row: Row, model: ModelShape) -> int:
    """As stated, or that at which adapters on every linear have the stated number of trained parameters."""
    if trained := number(TRAINED, row.notes):
        return max(1, round(trained / lora_parameters(model, 1)))
    return int(number(RANKS, row.text) or Workload.lora_rank)


def stack_of(row: Row) -> Stack:
    """The framework's profile, with the kernels and the gradients that the row itself speaks of."""
    stack = load_stack(first(STACKS, row.text, "torch"))
    attention = first(ATTENTION, row.flash_attention, first(ATTENTION_TOLD, row.text, stack.attention))
    if _recompute(row) == "core_attention":
        attention = "flash"  # scores are made again instead of kept: what flash attention does, too
    changes: dict[str, str | float | bool] = {"attention": attention}
    if stack.kin == "torch" and FP16_SUMS.search(row.notes):
        changes["fp16_sums"] = True
    changes["graphs"] = first(GRAPHS, row.notes, stack.graphs)
    if TUNED_ATTENTION.search(row.flash_attention):
        changes["attention_kernels"] = "tuned"
    if FUSED.search(f"{row.text} ; {row.flash_attention}"):
        changes["elementwise"] = "fused"
    if "grad_reduce_in_bf16" in row.settings or HALF_GRADIENTS.search(row.source):
        changes["gradient_bytes"] = 2.0
    elif WHOLE_GRADIENTS.search(row.notes):
        changes["gradient_bytes"] = 4.0
    if tile := number(TILE_TOKENS, row.notes):
        changes["tile_tokens"] = tile
    elif TILED.search(plain(row.text)):
        changes |= {"tile_tokens": float(row.hidden or USUAL_TILE_TOKENS), "tiles_recompute": True}
    return replace(stack, loss=_loss(row, stack.loss), **changes)  # type: ignore[arg-type]


def _loss(row: Row, usual: Loss) -> Loss:
    """The framework's loss, taken in the pieces that the row speaks of."""
    said = plain(row.text)
    if FUSED_LOSS.search(said):
        return replace(usual, fused=True, chunks=1.0, chunk_tokens=_fused_tokens(row), logit_bytes=HALF_LOGIT_BYTES)
    if chunks := number(HEAD_CHUNKS, row.notes):
        return replace(usual, chunks=chunks)
    if WHOLE_LOSS.search(said):
        return replace(usual, chunks=1.0, chunk_tokens=0.0)
    if (chunks := number(LOSS_CHUNKS, row.notes)) or CHUNKED_LOSS.search(said):
        own = usual.chunks > 1 or usual.chunk_tokens
        return usual if own else replace(usual, chunks=chunks or USUAL_LOSS_CHUNKS, kept_logit_bytes=HALF_LOGIT_BYTES)
    return usual


def _fused_tokens(row: Row) -> float:
    """Tokens of a piece of Liger's loss: so many that logits take no more than the hidden states do, as a power of two
    (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py: ``inc_factor``)."""
    tokens = (row.seq_len or 0) * (row.micro_batch or 1) / (row.cp or 1)
    times = ceil((row.vocab or USUAL_VOCABULARY) / (row.hidden or USUAL_HIDDEN))
    return 2.0 ** ceil(log2(max(tokens / times, 1.0)))


def knobs_of(row: Row, layout: Layout, batch: Batch, stack: Stack) -> Knobs:
    """ZeRO-2 keeps gathered parameters; ZeRO-1 keeps unsharded gradients until the last micro-batch, too, as pipelines do."""
    offload = offload_of(row)
    schedule, virtual = _schedule(row, offload, layout.pp, stack)
    recompute = {"core_attention": "none", "": "none"}.get(mode := _recompute(row), mode)
    split = layout.tp > 1 and (bool(row.sp) if row.sp is not None else stack.name in SPLITS_SEQUENCE)
    half = stack.gradient_bytes <= 2 and stack.name not in SUMS_IN_FLOAT32
    half = half or (row.zero_stage == 3 and stack.name in REDUCES_SHARDS_IN_HALF) or bool(PURE_HALF.search(row.text))
    return Knobs(
        micro_batch=batch.micro,
        recompute=recompute,
        saved_operations=SAVED_USUALLY,
        reshard_after_forward=layout.fsdp_ranks == 1
        or (row.zero_stage == 3 and not (layout.pp > 1 and stack.name in HOLDS_IN_PIPELINES)),
        sequence_parallel=split,
        loss_parallel=layout.tp > 1 and stack.name not in GATHERS_LOGITS,
        reduce_dtype="bf16" if half or HALF_REDUCE.search(row.notes) else "fp32",
        postpone_gradient_sync=row.zero_stage in (0, 1) or layout.pp > 1 or bool(NO_SYNC.search(row.notes)),
        offload=offload,
        pp_schedule=schedule,
        pp_virtual_stages=virtual if layout.pp > 1 else 1,
        compile=bool(row.compile),
        float8=_float8(row),
        float8_all_gather="fp8_param_gather" in row.settings and layout.fsdp_ranks > 1,
        late_update=offload == "streamed" and bool(LATER_UPDATE.search(row.text)),
        activation_offload=bool(ACTIVATIONS_AWAY.search(row.notes)),
        optimizer_in_backward=bool(IN_BACKWARD.search(plain(row.text))),
    )


def offload_of(row: Row) -> str:
    """What lies in the memory of the host."""
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


def _recompute(row: Row) -> str:
    """What is computed again: the column's value, refined by the modules that the notes list, else what the notes tell."""
    mode = first(RECOMPUTE, row.ac_mode, "")
    modules = RECOMPUTED_MODULES.search(row.notes)
    if mode == "core_attention" and modules:
        others = set(modules[1].replace("'", "").replace(" ", "").split(",")) - {"", "core_attn"}
        return "selective" if others else mode
    return mode or first(RECOMPUTE_TOLD, row.notes, first(RECOMPUTE_USUAL, row.text, ""))
