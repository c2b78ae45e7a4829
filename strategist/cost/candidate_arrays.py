"""Candidate arrays: the settings of a table of candidates as NumPy arrays for formulas."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from strategist.contract.layout import DEGREES
from strategist.contract.pipeline_stages import STREAM_LEAST, STREAM_ROUND
from strategist.contract.sac_policy import matmul_stride, saves_collectives
from strategist.contract.settings import AXIS_ORDERS
from strategist.contract.workload import Workload
from strategist.expr.columns import Columns
from strategist.frozen import frozen

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]
Number = Floats | float
"""A column, or one figure for all rows."""
Parts = dict[str, Floats]
"""Figures by part, one element a candidate."""


def total(parts: Parts) -> Floats:
    """Sum of the parts, in their order, so that a candidate's sum is identical to the last bit alone and within a table
    (np.sum's is not).
    """
    summed: Floats = sum(parts.values(), start=np.zeros(1))
    return summed


@frozen
class GatherCounts:
    """Number of all-gathers of a step: of layers in forward and in backward passes, and of embedding and head."""

    forward: Floats
    backward: Floats
    ends: Floats


@frozen
class View:
    """Settings of candidates as arrays, one element per candidate. ``tokens`` are those of one micro-batch on one rank."""

    pp: Floats
    dp_replicate: Floats
    dp_shard: Floats
    cp: Floats
    tp: Floats
    ep: Floats
    etp: Floats
    fsdp_ranks: Floats
    micro_batch: Floats
    accumulation: Floats
    tokens: Floats
    virtual_stages: Floats
    reshard_group: Floats
    recompute_full: Mask
    recompute_selective: Mask
    saved_matmuls: Floats
    saved_collectives: Mask
    recompute_every_second: Mask
    recompute_budget: Mask
    budget: Floats
    reshard: Mask
    reshard_subgroup: Mask
    sequence_parallel: Mask
    loss_parallel: Mask
    chunked_loss: Mask
    ep_overlap: Mask
    reduce_bytes: Floats
    no_sync: Mask
    offload_optimizer: Mask
    offload_all: Mask
    streamed: Mask
    breadth_first: Mask
    looped_bfs: Mask
    interleaved_zero_bubble: Mask
    zbv: Mask
    dual_pipe: Mask
    replicas_outermost: Mask
    compiled: Mask
    float8: Mask
    float8_rows: Mask
    float8_gather: Mask
    half_hook: Mask
    low_rank_hook: Mask
    update_at_once: Mask
    async_optimizer_step: Mask
    activations_away: Mask
    mixed: Mask

    @cached_property
    def ddp(self) -> Mask:
        """Whether parameters are replicated: DDP (or nothing) holds them instead of FSDP2. Pipeline stages with replicas use
        FSDP2, because the schedule tells it which micro-batch is the last.
        """
        replicated: Mask = (self.fsdp_ranks == 1) & (self.tp == 1) & ((self.pp == 1) | (self.dp_replicate == 1))
        return replicated

    @cached_property
    def fsdp(self) -> Mask:
        """Whether FSDP2 holds parameters that several data-parallel ranks share or replicate."""
        mask: Mask = ~self.ddp & (self.fsdp_ranks * self.dp_replicate > 1)
        return mask

    @cached_property
    def autocast(self) -> Mask:
        """Whether parameters are stored in fp32, matmuls use another type, and autocast casts at each matmul instead of FSDP
        layer by layer.
        """
        return self.ddp & self.mixed & ~self.streamed & ~self.offload_all

    @cached_property
    def recompute_none(self) -> Mask:
        """Whether activation checkpointing is off."""
        some: Mask = self.recompute_full | self.recompute_selective | self.recompute_every_second | self.recompute_budget
        return ~some

    @cached_property
    def v_shaped(self) -> Mask:
        """Whether each rank holds one stage of the first half and one of the second half in reverse, so that the first rank
        holds both ends of the model.
        """
        return self.zbv | self.dual_pipe

    @cached_property
    def looped(self) -> Mask:
        """Each rank holds several stages, assigned round-robin."""
        return (self.virtual_stages > 1) & ~self.v_shaped

    @cached_property
    def even_pp(self) -> Mask:
        """Whether the number of pipeline ranks is even."""
        mask: Mask = self.pp % 2 == 0
        return mask

    @cached_property
    def sequential_backward(self) -> Mask:
        """Whether the round-robin stages of a rank run their backward passes one after the other, each with all its
        micro-batches, and each is reduced and resharded before the next: breadth-first schedules, and schedules with a single
        round.
        """
        mask: Mask = self.looped & (self.looped_bfs | (self.accumulation <= self.pp))
        return mask

    @cached_property
    def zero_bubble(self) -> Mask:
        """Whether gradients of weights are computed separately from those of inputs."""
        return self.interleaved_zero_bubble | self.v_shaped

    @cached_property
    def rounds(self) -> Floats:
        """Number of times a step copies a streamed stage to the device, as ``contract.pipeline_stages.stream_rounds`` counts."""
        return np.maximum(np.round(self.accumulation / np.maximum(STREAM_ROUND * self.pp, STREAM_LEAST)), 1.0)

    @cached_property
    def round_batches(self) -> Floats:
        """Number of micro-batches that one copy of a streamed stage serves."""
        return np.ceil(self.accumulation / self.rounds)

    @cached_property
    def activation_shards(self) -> Floats:
        """Number of shards of activations between tensor-parallel regions: tp with sequence parallelism, else 1."""
        return np.where(self.sequence_parallel, self.tp, 1.0)

    @cached_property
    def logit_shards(self) -> Floats:
        return np.where(self.loss_parallel, self.tp, 1.0)

    @cached_property
    def frees_parameters(self) -> Mask:
        """Whether gathered parameters are freed, or reduced to a subgroup's, after a layer's forward pass."""
        return self.reshard | self.reshard_subgroup

    @cached_property
    def gathered_once(self) -> Mask:
        """Whether parameters are gathered for the first micro-batch only: neither resharded nor reduced before the last one
        (ZeRO-1).
        """
        return ~self.frees_parameters & self.no_sync

    @cached_property
    def gather_counts(self) -> GatherCounts:
        """One per micro-batch, or one per step if parameters stay gathered. torch's pipeline stages free no parameters after a
        backward pass but the last; of those freed after the forward pass, one all-gather serves a backward pass and the next
        forward pass, or all backward passes if these come last.
        """
        per_micro_batch = np.where(self.gathered_once, 1.0, self.accumulation)
        stays_gathered = (self.pp > 1) & ~self.streamed & self.no_sync
        freed_after_forward = stays_gathered & self.frees_parameters
        return GatherCounts(
            forward=np.where(freed_after_forward & ~self.breadth_first, 1.0, per_micro_batch),
            backward=np.where(freed_after_forward & self.breadth_first, 1.0, per_micro_batch),
            ends=np.where(stays_gathered, 1.0, per_micro_batch),
        )

    @cached_property
    def transfers(self) -> Floats:
        """Number of a stage's own transfers: one forward and one backward per micro-batch and virtual stage."""
        return 2 * self.accumulation * self.virtual_stages

    @cached_property
    def looped_batches(self) -> Floats:
        """Number of micro-batches of a rank beside which the collectives of one stage run in a looped pipeline that runs them once
        a step, mean over its stages: all but one stage's run beside a round of pp micro-batches (breadth first: beside all).
        """
        round_batches = np.where(self.sequential_backward, self.accumulation, np.minimum(self.pp, self.accumulation))
        return ((self.virtual_stages - 1) * round_batches + 1) / self.virtual_stages

    @cached_property
    def filling_transfers(self) -> Floats:
        """Number of exposed transfers: before a stage's first and after its last micro-batch and, unless breadth first, at the
        turn of each round of pp micro-batches (simulated: 124 for 1F1B with 8 stages and 64 micro-batches).
        """
        rounds = np.where(self.breadth_first, 1.0, np.maximum(self.accumulation / self.pp, 1.0))
        return 2 * (self.pp - 1) * rounds

    @cached_property
    def reductions(self) -> Floats:
        """Number of reductions of a step: of each micro-batch, or one."""
        return np.where(self.no_sync, 1.0, self.accumulation)


def view(columns: Columns, workload: Workload) -> View:
    """The view of a complete table (all of ``expr.columns.CANDIDATE_NAMES``)."""

    def number(name: str) -> Floats:
        return columns.values[name].astype(np.float64)

    def chosen(name: str, value: bool | str) -> Mask:
        choices = columns.categories.get(name)
        column = columns.values[name]
        return np.asarray(column == (value if choices is None else choices.index(value)), dtype=np.bool_)

    def by_choice(name: str, figure: Callable[[str], float]) -> Floats:
        return np.array([figure(str(choice)) for choice in columns.categories[name]])[columns.values[name]]

    return View(
        **{name: number(f"layout.{name}") for name in (*DEGREES, "fsdp_ranks")},
        micro_batch=number("knobs.micro_batch"),
        accumulation=number("knobs.accumulation"),
        tokens=number("knobs.micro_batch") * workload.seq_len / number("layout.cp"),
        virtual_stages=number("knobs.pp_virtual_stages"),
        reshard_group=number("knobs.reshard_group_size"),
        recompute_full=chosen("knobs.recompute", "full"),
        recompute_selective=chosen("knobs.recompute", "selective"),
        saved_matmuls=by_choice("knobs.saved_operations", lambda saved: 1 / stride if (stride := matmul_stride(saved)) else 0.0),
        saved_collectives=by_choice("knobs.saved_operations", saves_collectives) > 0,
        reshard=chosen("knobs.reshard_after_forward", True),
        reshard_subgroup=chosen("knobs.reshard_after_forward", "subgroup"),
        sequence_parallel=chosen("knobs.sequence_parallel", True),
        loss_parallel=chosen("knobs.loss_parallel", True),
        chunked_loss=chosen("knobs.chunked_loss", True),
        ep_overlap=chosen("knobs.ep_overlap", True),
        reduce_bytes=np.where(chosen("knobs.reduce_dtype", "bf16"), 2.0, 4.0),
        no_sync=chosen("knobs.no_sync", True),
        offload_optimizer=chosen("knobs.offload", "optimizer"),
        offload_all=chosen("knobs.offload", "all"),
        streamed=chosen("knobs.offload", "streamed"),
        recompute_every_second=chosen("knobs.recompute", "every_second_layer"),
        recompute_budget=chosen("knobs.recompute", "budget"),
        budget=number("knobs.recompute_budget_percent") / 100,
        breadth_first=chosen("knobs.pp_schedule", "gpipe") | chosen("knobs.pp_schedule", "looped_bfs"),
        looped_bfs=chosen("knobs.pp_schedule", "looped_bfs"),
        interleaved_zero_bubble=chosen("knobs.pp_schedule", "interleaved_zero_bubble"),
        zbv=chosen("knobs.pp_schedule", "zbv_zero_bubble"),
        dual_pipe=chosen("knobs.pp_schedule", "dual_pipe_v"),
        replicas_outermost=chosen("layout.axis_order", AXIS_ORDERS[1]),
        compiled=chosen("knobs.compile", True),
        float8=~chosen("knobs.float8", "none"),
        float8_rows=chosen("knobs.float8", "rowwise"),
        float8_gather=chosen("knobs.float8_all_gather", True),
        half_hook=chosen("knobs.comm_hook", "bf16") | chosen("knobs.comm_hook", "fp16"),
        low_rank_hook=chosen("knobs.comm_hook", "powersgd"),
        update_at_once=chosen("knobs.optimizer_in_backward", True),
        async_optimizer_step=chosen("knobs.async_optimizer_step", True),
        activations_away=chosen("knobs.activation_offload", True),
        mixed=np.full(columns.rows, workload.train == "full" and workload.precision not in ("fp32", "bf16-true")),
    )
