"""Knobs: everything that a plan sets besides the layout, with the values each may take."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload

KnobValue = bool | int | str


CHOICES: dict[str, tuple[KnobValue, ...]] = {
    "reshard_after_forward": (True, False, "subgroup"),
    "recompute": ("none", "selective", "full"),
    "sequence_parallel": (False, True),
    "loss_parallel": (False, True),
    "reduce_dtype": ("fp32", "bf16"),
    "postpone_gradient_sync": (False, True),
    "offload": ("none", "optimizer", "all", "streamed"),
    "pp_schedule": ("gpipe", "1f1b", "interleaved_1f1b"),
}
"""The closed knobs. The others (micro_batch, reshard_group_size, pp_virtual_stages) are positive integers."""

CONVERGENCE_KNOBS = {"reduce_dtype": "fp32"}
"""Knobs that can change the result of training, with the value that doesn't; all others change execution only."""


def show_value(value: KnobValue) -> str:
    """A setting's value as people write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Settings beside the layout.

    reshard_after_forward: what FSDP2 does with gathered parameters after the forward pass: free them (True), keep them
        (False), or keep ``1 / reshard_group_size`` of them (subgroup).
    recompute: activation checkpointing; ``selective`` saves matmul and attention outputs and recomputes the rest, ``full``
        saves only each layer's input.
    sequence_parallel: activations between tensor-parallel regions are sharded along the sequence.
    loss_parallel: logits stay sharded over tp through the loss.
    reduce_dtype: the type in which gradients are reduced and accumulated.
    postpone_gradient_sync: gradients are reduced after the last micro-batch of a step only; until then each rank keeps them
        unsharded, in ``reduce_dtype``.
    offload: what lives in host memory: optimizer states; parameters, gradients and optimizer (all); or the same with whole stages
        streamed to the devices and each used for many micro-batches (streamed).
    micro_batch: sequences per forward pass of one data rank.
    """

    micro_batch: int = 1
    recompute: str = "none"
    reshard_after_forward: bool | str = True
    reshard_group_size: int = 1
    sequence_parallel: bool = False
    loss_parallel: bool = False
    reduce_dtype: str = "fp32"
    postpone_gradient_sync: bool = False
    offload: str = "none"
    pp_schedule: str = "1f1b"
    pp_virtual_stages: int = 1

    def violations(self, layout: Layout, model: ModelShape, workload: Workload) -> Iterator[str]:
        """The laws that these knobs break together with the layout, each as a sentence naming the values."""
        for name, choices in CHOICES.items():
            if not any(getattr(self, name) is choice or getattr(self, name) == choice for choice in choices):
                yield f"{name} {getattr(self, name)} is not one of {', '.join(map(str, choices))}"
        if min(self.micro_batch, self.reshard_group_size, self.pp_virtual_stages) < 1:
            yield "micro_batch, reshard_group_size and pp_virtual_stages are at least 1"
            return
        if workload.global_batch % (layout.data_ranks * self.micro_batch):
            yield (
                f"data ranks {layout.data_ranks} x micro_batch {self.micro_batch} must divide global_batch {workload.global_batch}"
            )
        if self.reshard_after_forward == "subgroup" and (
            self.reshard_group_size < 2
            or layout.fsdp_ranks % self.reshard_group_size
            or self.reshard_group_size == layout.fsdp_ranks
        ):
            yield f"reshard_group_size {self.reshard_group_size} must be a true divisor of dp_shard x cp = {layout.fsdp_ranks}"
        if self.reshard_after_forward == "subgroup" and layout.tp > 1:
            # torch 2.13: "Resharding to smaller mesh is not supported for DTensor parameters yet"
            yield f"reshard_after_forward subgroup needs tp 1, not {layout.tp}: FSDP2 cannot regroup shards that tp has split"
        if self.offload == "streamed" and layout.pp < layout.world_size:
            yield "offload streamed deals stages to devices one by one: pp must span all devices"
        if layout.tp == 1 and (self.sequence_parallel or self.loss_parallel):
            yield "sequence_parallel and loss_parallel need tp above 1"
        if self.loss_parallel and model.vocab_size % layout.tp:
            yield f"loss_parallel needs tp {layout.tp} to divide vocab_size {model.vocab_size}"
        yield from self._pipeline_violations(layout, model, workload)

    def _pipeline_violations(self, layout: Layout, model: ModelShape, workload: Workload) -> Iterator[str]:
        if layout.pp == 1:
            if self.pp_virtual_stages > 1:
                yield f"pp_virtual_stages {self.pp_virtual_stages} needs pp above 1"
            return
        if self.pp_schedule == "interleaved_1f1b":
            if self.pp_virtual_stages < 2:
                yield "interleaved_1f1b needs pp_virtual_stages above 1"
        elif self.pp_virtual_stages > 1:
            yield f"pp_virtual_stages {self.pp_virtual_stages} needs interleaved_1f1b"
        if (layout.data_ranks * layout.cp > 1 or self.offload == "all") and not self.postpone_gradient_sync:
            yield "a pipeline reduces gradients after its last micro-batch: postpone_gradient_sync must be true with pp above 1"
        if layout.pp * self.pp_virtual_stages > model.layers:
            yield f"pp x pp_virtual_stages = {layout.pp * self.pp_virtual_stages} must not exceed the {model.layers} layers"
        micro_batches = workload.global_batch // (layout.data_ranks * self.micro_batch)
        if self.pp_schedule != "gpipe" and micro_batches < layout.pp:
            yield f"{self.pp_schedule} needs at least pp = {layout.pp} micro-batches, not {micro_batches}"
        if self.pp_schedule == "interleaved_1f1b" and micro_batches % max(1, micro_batches // layout.pp):
            yield f"interleaved_1f1b runs in rounds: {micro_batches} micro-batches must split evenly into them"


KNOB_NAMES = tuple(field.name for field in fields(Knobs))


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One complete setting: a layout and all knobs."""

    layout: Layout
    knobs: Knobs

    def accumulation(self, workload: Workload) -> int:
        """Micro-batches of one step on one data rank."""
        return workload.global_batch // (self.layout.data_ranks * self.knobs.micro_batch)

    def violations(self, model: ModelShape, workload: Workload, devices: int) -> tuple[str, ...]:
        """Every law that the candidate breaks; empty when it is legal."""
        broken = tuple(self.layout.violations(model, workload, devices))
        return broken or tuple(self.knobs.violations(self.layout, model, workload))
