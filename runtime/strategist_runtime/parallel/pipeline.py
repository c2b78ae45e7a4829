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
    stage_count = layout.pp * knobs.pp_virtual_stages
    boundaries = list(accumulate(plan.stage_layers, initial=0))
    for stage in stages_of_rank(knobs.pp_schedule, layout.pp, stage_count, stage_rank):
        yield StageSpec(layers=range(boundaries[stage], boundaries[stage + 1]), embedding=stage == 0, head=stage == stage_count - 1)


class Pipeline:
    """This rank's schedule: runs the forward and backward passes of all micro-batches of a step."""

    def __init__(self, parts: tuple[nn.Module, ...], plan: Plan, meshes: Meshes, device: torch.device, loss: Loss) -> None:
        assert meshes.pipeline is not None
        layout, knobs = plan.candidate.layout, plan.candidate.knobs
        stage_count = layout.pp * knobs.pp_virtual_stages
        stage_indices = stages_of_rank(knobs.pp_schedule, layout.pp, stage_count, meshes.stage_rank)
        group = meshes.pipeline.get_group()
        stages = [
            Stage(
                part,
                index,
                stage_count,
                device,
                *_examples(plan, index, stage_count, device),
                group=group,
                loss_in_stage=loss.chunked,
            )
            for part, index in zip(parts, stage_indices, strict=True)
        ]
        kind = get_schedule_class(SCHEDULES[knobs.pp_schedule])
        common = {"n_microbatches": plan.accumulation, "loss_fn": loss, "scale_grads": False}
        self.schedule = kind(stages[0], **common) if issubclass(kind, PipelineScheduleSingle) else kind(stages, **common)
        self.has_first, self.has_last = 0 in stage_indices, stage_count - 1 in stage_indices
        self.plan, self.loss, self.group, self.stage_count = plan, loss, group, stage_count
        self.parts = dict(zip(stage_indices, parts, strict=True))
        self.example_inputs = {index: _examples(plan, index, stage_count, device)[0] for index in stage_indices}
        self.tied_weights = EmbeddingAndHead(parts, _first_and_last_ranks(plan), device) if plan.model.tied_embeddings else None

    def run(self, batch: Batch) -> Tensor:
        """The mean loss of this rank's rows; 0 on ranks without the last stage. Afterwards the parameters have their gradients."""
        losses: list[Tensor] = []
        targets = {"target": batch.targets, "losses": losses} if self.has_last else {}
        self.schedule.step(
            *((batch.tokens,) if self.has_first else ()), **targets, **batch.extras(targets=self.loss.chunked), return_outputs=False
        )
        if self.tied_weights is not None:
            self.tied_weights.sum_gradients()
        return (
            torch.stack([local(loss.detach()) for loss in losses]).sum() if losses else torch.zeros((), device=batch.tokens.device)
        )

    def evaluate(self, batch: Batch) -> Tensor:
        """The loss of this rank's rows, forward only; 0 on ranks without the last stage. Each stage runs all micro-batches,
        without the schedule, whose buffers are made for backward passes.

        Where a stage receives from the rank to which it sends (two ranks, interleaved stages), it sends after its last micro-batch:
        NCCL exchanges the messages of two ranks in one order, so a send would wait for a receive behind the peer's other sends.
        """
        total, local_outputs = torch.zeros((), device=batch.tokens.device), dict[tuple[int, int], Tensor]()
        sends: list[tuple[dist.Work | None, Tensor]] = []
        for stage, part in self.parts.items():
            unsent: list[Tensor] = []
            for micro_batch, rows in enumerate(batch.micro_batches(self.plan.candidate.knobs.micro_batch)):
                x = rows.tokens if stage == 0 else self._stage_input(stage, micro_batch, local_outputs)
                y = part(x, **rows.extras(targets=self.loss.chunked))
                if stage == self.stage_count - 1:
                    total += local(self.loss(y, rows.targets))
                elif self._rank_of(stage + 1) == self._rank_of(stage):
                    local_outputs[stage + 1, micro_batch] = y
                else:
                    unsent.append(y.contiguous())
                    if stage == 0 or self._rank_of(stage + 1) != self._rank_of(stage - 1):
                        sends += self._sends(stage, unsent)
            sends += self._sends(stage, unsent)
        for work, _ in sends:
            assert work is not None  # None only for a send to this rank itself
            work.wait()
        return total

    def _sends(self, stage: int, unsent: list[Tensor]) -> list[tuple[dist.Work | None, Tensor]]:
        """Starts to send these outputs of a stage, and empties the list."""
        outputs, unsent[:] = tuple(unsent), []
        return [(dist.isend(y, group=self.group, group_dst=self._rank_of(stage + 1)), y) for y in outputs]

    def _stage_input(self, stage: int, micro_batch: int, local_outputs: dict[tuple[int, int], Tensor]) -> Tensor:
        """The input of a stage for a micro-batch, from this rank or another."""
        if (stage, micro_batch) in local_outputs:
            return local_outputs.pop((stage, micro_batch))
        x = torch.empty_like(self.example_inputs[stage], requires_grad=False)
        dist.recv(x, group=self.group, group_src=self._rank_of(stage - 1))
        return x

    def _rank_of(self, stage: int) -> int:
        """The rank of the pipeline that holds a stage."""
        layout, knobs = self.plan.candidate.layout, self.plan.candidate.knobs
        return rank_of_stage(knobs.pp_schedule, layout.pp, self.stage_count, stage)


def _examples(plan: Plan, stage: int, stage_count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Empty tensors like the input and the output of a stage for one micro-batch; with them torch needs no trial pass to infer
    shapes.

    Hidden states are sent in the compute type; with autocast the residual stream stays in fp32.
    """
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    tokens = workload.seq_len // layout.cp
    hidden_tokens = tokens // layout.tp if knobs.sequence_parallel else tokens
    dtype = DTYPES[workload.compute_dtype] if uses_fsdp(layout, knobs.offload) else model_dtype(plan)
    hidden_shape = (knobs.micro_batch, hidden_tokens, plan.model.hidden_size)
    token_ids = torch.empty(knobs.micro_batch, tokens, dtype=torch.int64, device=device)
    logits = torch.empty(knobs.micro_batch, tokens, 1, dtype=dtype, device=device).expand(-1, -1, plan.model.vocab_size)
    hidden_states = torch.empty(hidden_shape, dtype=dtype, device=device, requires_grad=True)
    return token_ids if stage == 0 else hidden_states, logits if stage == stage_count - 1 else hidden_states


def _first_and_last_ranks(plan: Plan) -> list[tuple[int, int]]:
    """The ranks of the first and of the last stage, for each of the parallel pipelines."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    stage_count = layout.pp * knobs.pp_virtual_stages
    last = rank_of_stage(knobs.pp_schedule, layout.pp, stage_count, stage_count - 1)
    with with_values():
        grid = rank_grid(layout).flatten(1).tolist()
    return list(zip(grid[0], grid[last], strict=True))
