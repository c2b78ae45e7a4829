"""Layout: parallelism degrees, the order of the mesh axes, and constraints between them."""

import math
from collections.abc import Iterator

from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload
from strategist.frozen import frozen

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Axes of the mesh in the default order, slowest links first."""

DEGREES = (*AXES, "ep", "etp")
"""All degrees of a layout; ep and etp are not mesh axes, but are formed from other axes."""

OBSERVED_AXES = (*AXES, "ep")
"""Axes whose communication a trial measures separately."""


@frozen
class Layout:
    """Degrees of pipeline, replicated data, sharded data, context, tensor and expert parallelism; all but ep and etp span the mesh.

    Parameters are sharded over ``dp_shard x cp``: every context-parallel rank holds a shard of its own. Expert ranks are formed
    from ``dp_shard x cp x tp``: ``ep`` ranks share a layer's experts, and ``etp`` ranks split each expert. ``axis_order`` goes from
    the slowest to the fastest varying axis, so ranks of the last axis are adjacent.
    """

    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1
    axis_order: tuple[str, ...] = AXES

    @property
    def world_size(self) -> int:
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp

    @property
    def data_ranks(self) -> int:
        """Ranks that read different sequences."""
        return self.dp_replicate * self.dp_shard

    @property
    def fsdp_ranks(self) -> int:
        """Ranks that share one set of parameter shards."""
        return self.dp_shard * self.cp

    @property
    def model_shards(self) -> int:
        """Number of shards of the dense parameters: one rank holds 1 / model_shards of them."""
        return self.pp * self.fsdp_ranks * self.tp

    @property
    def mesh(self) -> dict[str, int]:
        """Axes with their degrees, slowest first, without axes of degree 1."""
        return {axis: getattr(self, axis) for axis in self.axis_order if getattr(self, axis) > 1}

    @property
    def _stage_stride(self) -> int:
        """Distance in ranks between neighbouring pipeline stages: the product of the axes after pp in ``axis_order``."""
        return math.prod(getattr(self, axis) for axis in self.axis_order[self.axis_order.index("pp") + 1 :])

    def stage_of(self, rank: int) -> int:
        """Pipeline rank of a global rank."""
        return rank // self._stage_stride % self.pp

    def first_rank(self, stage: int) -> int:
        """First global rank of a pipeline rank."""
        return stage * self._stage_stride

    @property
    def _folds_in_order(self) -> bool:
        return [axis for axis in self.axis_order if axis in ("dp_shard", "cp", "tp")] == ["dp_shard", "cp", "tp"]

    def violations(self, model: ModelShape, workload: Workload, devices: int) -> Iterator[str]:
        """Constraints that this layout violates, each as a sentence with the values."""
        if min(self.pp, self.dp_replicate, self.dp_shard, self.cp, self.tp, self.ep, self.etp) < 1:
            yield "every degree is at least 1"
            return
        if sorted(self.axis_order) != sorted(AXES):
            yield f"axis_order {'.'.join(self.axis_order)} must name each of {' '.join(AXES)} once"
        elif self.cp > 1 and self.axis_order.index("dp_shard") > self.axis_order.index("cp"):
            order = f"axis_order {'.'.join(self.axis_order)}"
            yield f"{order}: dp_shard {self.dp_shard} and cp {self.cp} shard parameters together, in this order"
        elif self.ep * self.etp > 1 and not self._folds_in_order:
            order = f"axis_order {'.'.join(self.axis_order)}"
            yield f"{order}: ep {self.ep} and etp {self.etp} unfold from dp_shard, cp and tp, in this order"
        if self.world_size != devices:
            yield f"pp x dp_replicate x dp_shard x cp x tp = {self.world_size} must equal the {devices} devices"
        elif workload.global_batch % self.data_ranks:
            yield f"dp_replicate x dp_shard = {self.data_ranks} must divide global_batch {workload.global_batch}"
        if self.pp > model.layers:
            yield f"pp {self.pp} must not exceed the {model.layers} layers"
        for name, size in (("heads", model.heads), ("kv_heads", model.kv_heads if model.mla is None else model.heads)):
            if size % self.tp:
                yield f"tp {self.tp} must divide {name} {size}"
        if model.ffn_size % self.tp:
            yield f"tp {self.tp} must divide ffn_size {model.ffn_size}"
        if workload.seq_len % (self.tp * 2 * self.cp if self.cp > 1 else self.tp):
            yield f"seq_len {workload.seq_len} must divide by tp {self.tp} and, with cp, by 2 x cp {self.cp}"
        yield from self.expert_violations(model)

    def expert_violations(self, model: ModelShape) -> Iterator[str]:
        """Constraints of ``ep`` and ``etp`` that this layout violates; they depend on its tp and data-parallel ranks alone."""
        if model.moe is None:
            if self.ep > 1 or self.etp > 1:
                yield f"ep {self.ep} and etp {self.etp} need a model with experts; {model.name} is dense"
            return
        if model.moe.experts % self.ep:
            yield f"ep {self.ep} must divide the {model.moe.experts} experts"
        if (self.dp_shard * self.cp * self.tp) % (self.ep * self.etp):
            yield f"ep x etp = {self.ep * self.etp} must divide dp_shard x cp x tp = {self.dp_shard * self.cp * self.tp}"
        if model.moe.expert_ffn_size % self.etp:
            yield f"etp {self.etp} must divide expert_ffn_size {model.moe.expert_ffn_size}"
        if self.etp not in (1, self.tp):
            yield f"etp {self.etp} must be 1 or tp {self.tp}"
