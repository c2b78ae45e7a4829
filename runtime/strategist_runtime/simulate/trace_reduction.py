"""The part of a step that has to be traced: the first and last layers of each stage with a few of the equal layers between them,
and a few micro-batches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.pipeline_stages import RESIDENT_LAYERS
from strategist.contract.plan import Plan
from strategist_runtime.mesh import uses_fsdp
from strategist_runtime.parallel.pipeline import stage_specs
from strategist_runtime.simulate.extrapolation import StepSize
from strategist_runtime.simulate.repeated_layers import MiddleLayers

END_LAYERS = 2
"""Layers at the end of a stage that are always traced, since the module after them affects them."""


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The traced layers of a plan's stages on one rank: the first ``first_layers`` of each stage, its last ones, and whole
    periods of those between.

    ``whole`` and ``smallest`` are sizes as in ``extrapolated``; micro-batches come in multiples of ``micro_batch_multiple``.
    """

    period: int
    first_layers: int
    whole: StepSize
    smallest: StepSize
    micro_batch_multiple: int
    stages: Sequence[Sequence[int]]

    def layers(self, stage: Sequence[int], size: StepSize) -> Sequence[int]:
        """The layers of a stage in a step of this size."""
        omitted_layers = (self.whole.middle - size.middle) * self.period
        return (*stage[: self.first_layers], *stage[self.first_layers + omitted_layers :])

    def middle_layers(self, size: StepSize) -> list[MiddleLayers]:
        """The middle layers of each stage in a step of this size, which must have at least two periods."""
        return [MiddleLayers(layers=self.layers(stage, size), first=self.first_layers, period=self.period) for stage in self.stages]

    def plan(self, plan: Plan, size: StepSize) -> Plan:
        """The plan with the micro-batches of this size."""
        rows = size.micro_batches * plan.candidate.knobs.micro_batch * plan.candidate.layout.data_ranks
        return replace(plan, workload=replace(plan.workload, global_batch=rows))


def reduction(plan: Plan, stage_rank: int) -> Reduction:
    """The reduction for the stages of pipeline rank ``stage_rank``."""
    options, knobs, moe = plan.candidate.options, plan.candidate.knobs, plan.model.moe
    period = math.lcm(
        options.layers_per_unit, 2 if knobs.recompute == "every_second_layer" else 1, max(plan.model.full_attention_every, 1)
    )
    stages = [stage_spec.layers for stage_spec in stage_specs(plan, stage_rank)]
    dense_layers = max((sum(layer < moe.first_dense_layers for layer in stage) for stage in stages), default=0) if moe else 0
    prefetched_layers = options.prefetch_units * options.layers_per_unit + (RESIDENT_LAYERS if knobs.activation_offload else 0)
    first_layers = dense_layers + 1 + prefetched_layers
    if replicas(plan.candidate):  # the number of DDP's buckets cannot be derived from a smaller model
        first_layers = plan.model.layers
    middle = max(min(len(stage) for stage in stages) - first_layers - max(END_LAYERS, prefetched_layers), 0) // period
    min_micro_batches, micro_batch_multiple = _micro_batches(knobs, plan.candidate.layout.pp, plan.accumulation)
    return Reduction(
        period=period,
        first_layers=first_layers,
        whole=StepSize(middle=middle, micro_batches=plan.accumulation),
        smallest=StepSize(middle=0, micro_batches=min_micro_batches),
        micro_batch_multiple=micro_batch_multiple,
        stages=stages,
    )


def replicas(candidate: Candidate) -> bool:
    """Whether DDP reduces the gradients."""
    layout = candidate.layout
    return layout.pp == 1 and layout.dp_replicate > 1 and not uses_fsdp(layout, candidate.knobs.offload)


def _micro_batches(knobs: Knobs, pp: int, count: int) -> tuple[int, int]:
    """The number of micro-batches from which figures grow linearly (a pipeline must be full), and the multiples in which they
    grow.
    """
    if pp == 1:
        return 2, 1
    if knobs.pp_virtual_stages == 1:
        return pp + 1, 1
    filled = 3 if knobs.pp_schedule.startswith("interleaved") else 2
    return filled * pp + count % pp, pp
