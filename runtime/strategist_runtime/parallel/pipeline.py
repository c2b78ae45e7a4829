"""Pipeline parallelism: stages and torch's seven schedules (arXiv 1811.06965, 2104.04473, 2401.10241)."""

from collections.abc import Iterator
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

from strategist.contract.pipeline_stages import rank_of_stage, stages_of_rank
from strategist.contract.plan import Plan
from strategist_runtime.compat.device import with_values
from strategist_runtime.compat.dtensor import local
from strategist_runtime.compat.pipeline import Stage
from strategist_runtime.data.batch import Batch
from strategist_runtime.mesh import Meshes, rank_grid, uses_fsdp
from strategist_runtime.model.decoder import StageSpec
from strategist_runtime.model.loss import Loss
from strategist_runtime.parallel.embedding_and_head import EmbeddingAndHead
from strategist_runtime.precision import DTYPES, model_dtype

SCHEDULES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "looped_bfs": "LoopedBFS", "interleaved_1f1b": "Interleaved1F1B",
    "interleaved_zero_bubble": "InterleavedZeroBubble", "zbv_zero_bubble": "ZBVZeroBubble", "dual_pipe_v": "DualPipeV",
}  # fmt: skip
"""Names of torch's schedules by the value of ``pp_schedule``."""


def stage_specs(plan: Plan, stage_rank: int) -> Iterator[StageSpec]:
    """The stages of one pipeline rank, in the order of the model."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    count = layout.pp * knobs.pp_virtual_stages
    ends = list(accumulate(plan.stage_layers, initial=0))
    for stage in stages_of_rank(knobs.pp_schedule, layout.pp, count, stage_rank):
        yield StageSpec(layers=range(ends[stage], ends[stage + 1]), embedding=stage == 0, head=stage == count - 1)


class Pipeline:
    """This rank's schedule: runs the forward and backward passes of all micro-batches of a step."""

    def __init__(self, parts: tuple[nn.Module, ...], plan: Plan, meshes: Meshes, device: torch.device, loss: Loss) -> None:
        assert meshes.pipeline is not None
        layout, knobs = plan.candidate.layout, plan.candidate.knobs
        count = layout.pp * knobs.pp_virtual_stages
        numbers = stages_of_rank(knobs.pp_schedule, layout.pp, count, meshes.stage_rank)
        group = meshes.pipeline.get_group()
        stages = [
            Stage(part, number, count, device, *_examples(plan, number, count, device), group=group)
            for part, number in zip(parts, numbers, strict=True)
        ]
        kind, micro_batches = get_schedule_class(SCHEDULES[knobs.pp_schedule]), plan.accumulation
        common = {"n_microbatches": micro_batches, "loss_fn": loss, "scale_grads": False}
        self.schedule = kind(stages[0], **common) if issubclass(kind, PipelineScheduleSingle) else kind(stages, **common)
        self.first, self.last = 0 in numbers, count - 1 in numbers
        self.plan, self.parts, self.loss, self.group, self.count = plan, dict(zip(numbers, parts, strict=True)), loss, group, count
        self.entering = {number: _examples(plan, number, count, device)[0] for number in numbers}
        self.ends = EmbeddingAndHead(parts, _first_and_last_ranks(plan), device) if plan.model.tied_embeddings else None

    def run(self, batch: Batch) -> Tensor:
        """The mean loss of this rank's rows; 0 on ranks without the last stage. Afterwards the parameters have their gradients."""
        losses: list[Tensor] = []
        targets = {"target": batch.targets, "losses": losses} if self.last else {}
        self.schedule.step(
            *((batch.tokens,) if self.first else ()), **targets, **batch.extras(targets=self.loss.chunked), return_outputs=False
        )
        if self.ends is not None:
            self.ends.sum_gradients()
        return (
            torch.stack([local(loss.detach()) for loss in losses]).sum() if losses else torch.zeros((), device=batch.tokens.device)
        )

    def evaluate(self, batch: Batch) -> Tensor:
        """The loss of this rank's rows, forward only; 0 on ranks without the last stage. Each stage runs all micro-batches,
        without the schedule, whose buffers are made for backward passes.
        """
        total, here, sent = torch.zeros((), device=batch.tokens.device), dict[tuple[int, int], Tensor](), []
        for number, part in self.parts.items():
            for index, rows in enumerate(batch.micro_batches(self.plan.candidate.knobs.micro_batch)):
                x = rows.tokens if number == 0 else self._entering(number, index, here)
                y = part(x, **rows.extras(targets=self.loss.chunked))
                if number == self.count - 1:
                    total += local(self.loss(y, rows.targets))
                elif (peer := self._rank(number + 1)) == self._rank(number):
                    here[number + 1, index] = y
                else:
                    y = y.contiguous()
                    sent.append((dist.isend(y, group=self.group, group_dst=peer), y))
        for work, _ in sent:
            assert work is not None  # None only for a send to this rank itself
            work.wait()
        return total

    def _entering(self, number: int, index: int, here: dict[tuple[int, int], Tensor]) -> Tensor:
        """The input of a stage for a micro-batch, from this rank or another."""
        if (number, index) in here:
            return here.pop((number, index))
        x = torch.empty_like(self.entering[number], requires_grad=False)
        dist.recv(x, group=self.group, group_src=self._rank(number - 1))
        return x

    def _rank(self, number: int) -> int:
        """The rank of the pipeline that holds a stage."""
        layout, knobs = self.plan.candidate.layout, self.plan.candidate.knobs
        return rank_of_stage(knobs.pp_schedule, layout.pp, self.count, number)


def _examples(plan: Plan, stage: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Empty tensors like the input and the output of a stage for one micro-batch; with them torch needs no trial pass to infer
    shapes.

    Hidden states are sent in the compute type; with autocast the residual stream stays in fp32.
    """
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    tokens = workload.seq_len // layout.cp
    between = tokens // layout.tp if knobs.sequence_parallel else tokens
    dtype = DTYPES[workload.compute_dtype] if uses_fsdp(layout, knobs.offload) else model_dtype(plan)
    hidden = (knobs.micro_batch, between, plan.model.hidden_size)
    entering = torch.empty(knobs.micro_batch, tokens, dtype=torch.int64, device=device)
    logits = torch.empty(knobs.micro_batch, tokens, 1, dtype=dtype, device=device).expand(-1, -1, plan.model.vocab_size)
    empty = torch.empty(hidden, dtype=dtype, device=device, requires_grad=True)
    return entering if stage == 0 else empty, logits if stage == count - 1 else empty


def _first_and_last_ranks(plan: Plan) -> list[tuple[int, int]]:
    """The ranks of the first and of the last stage, for each of the parallel pipelines."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    count = layout.pp * knobs.pp_virtual_stages
    last = rank_of_stage(knobs.pp_schedule, layout.pp, count, count - 1)
    with with_values():
        grid = rank_grid(layout).flatten(1).tolist()
    return list(zip(grid[0], grid[last], strict=True))
