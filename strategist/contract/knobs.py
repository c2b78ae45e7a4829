"""Knobs: the settings besides the layout that change the price, with their allowed values; and Candidate."""

import hashlib
from collections.abc import Iterator
from dataclasses import field, fields
from functools import cached_property

from strategist.contract import codec
from strategist.contract.codec import added
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.options import KnobValue as KnobValue, Options, acts
from strategist.contract.sac_policy import SAVED_OPERATIONS
from strategist.contract.workload import Workload
from strategist.frozen import frozen

CHOICES: dict[str, tuple[KnobValue, ...]] = {
    "reshard_after_forward": (True, False, "subgroup"),
    "recompute": ("none", "selective", "every_second_layer", "budget", "full"),
    "saved_operations": SAVED_OPERATIONS,
    "sequence_parallel": (False, True),
    "loss_parallel": (False, True),
    "chunked_loss": (False, True),
    "reduce_dtype": ("fp32", "bf16"),
    "no_sync": (False, True),
    "offload": ("none", "optimizer", "all", "streamed"),
    "pp_schedule": (
        "gpipe", "1f1b", "looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv_zero_bubble", "dual_pipe_v",
    ),
    "compile": (False, True),
    "float8": ("none", "tensorwise", "rowwise"),
    "float8_all_gather": (False, True),
    "comm_hook": ("none", "fp16", "bf16", "powersgd"),
    "optimizer_in_backward": (False, True),
    "async_optimizer_step": (False, True),
    "activation_offload": (False, True),
    "ep_overlap": (False, True),
}  # fmt: skip
"""Allowed values of knobs with a closed set of values. All other knobs are positive integers."""

CONVERGENCE_KNOBS: dict[str, KnobValue] = {
    "reduce_dtype": "fp32",
    "float8": "none",
    "comm_hook": "none",
    "optimizer_in_backward": False,
    "async_optimizer_step": False,
}
"""Knobs that can change the result of training, with the value that does not. All other knobs change execution only."""

LOOPED = ("looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble")
"""Interleaved schedules: each rank has several stages, and micro-batches pass over all ranks several times."""

V_SHAPED = ("zbv_zero_bubble", "dual_pipe_v")
"""Schedules with two stages per rank: stages go from the first rank to the last and back."""

ROUND_BASED = ("interleaved_1f1b", "interleaved_zero_bubble")
"""Interleaved schedules that process micro-batches in rounds of equal size."""

ZERO_BUBBLE = ("interleaved_zero_bubble", *V_SHAPED)
"""Schedules that compute weight gradients separately from input gradients."""

PAIRED = ("interleaved_1f1b", "dual_pipe_v")
"""Schedules with ``ep_overlap``: a forward pass of one micro-batch can run together with a backward pass of another one."""


def least_micro_batches(schedule: str, pp: int) -> int:
    """Smallest number of micro-batches per step that a schedule supports."""
    return {"gpipe": 1, "looped_bfs": 1, "dual_pipe_v": 2 * pp}.get(schedule, pp)


def show_value(value: KnobValue) -> str:
    """A setting's value as users write it, such as ``true`` for True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@frozen
class Knobs:
    """Settings besides the layout that change the price.

    reshard_after_forward: what FSDP2 does with gathered parameters after the forward pass: free them (True), keep them (False), or
        keep ``1 / reshard_group_size`` of them (subgroup).
    micro_batch: sequences per forward pass of one data rank.
    recompute: activation checkpointing. ``selective`` saves outputs of ``saved_operations`` and recomputes the rest;
        ``every_second_layer`` checkpoints every second layer and saves all activations of the others; ``budget`` lets the compiler
        save ``recompute_budget_percent`` of what it would save without; ``full`` saves only the input of each layer.
    sequence_parallel: activations between tensor-parallel regions are sharded along the sequence.
    loss_parallel: logits stay sharded over tp through the loss.
    reduce_dtype: the type in which gradients are reduced and accumulated.
    no_sync: gradient accumulation without reduction: gradients are reduced only after the last micro-batch of a step. Until then
        each rank keeps them unsharded, in ``reduce_dtype``.
    offload: what is kept in host memory: optimizer states (optimizer); parameters, gradients and optimizer states (all); or the
        same, with whole stages copied to the devices and each used for many micro-batches (streamed).
    compile: torch.compile compiles each decoder layer.
    float8: linears multiply in float8 with a scale per tensor (tensorwise) or per row (rowwise). ``float8_all_gather`` casts shards
        before the all-gather.
    comm_hook: compression of DDP's gradients for the all-reduce: a cast, or a low-rank approximation (PowerSGD, arXiv 1905.13727).
    optimizer_in_backward: each parameter is updated as soon as its gradient is complete; the gradient is then freed, and gradients
        are not clipped. Updates on hosts overlap with the backward pass of earlier layers; with offload optimizer or all, they
        follow the gradient of the last micro-batch.
    async_optimizer_step: hosts update streamed stages during the next step, which therefore uses parameters that are one step old.
    activation_offload: activations saved for the backward pass are kept in host memory and copied back one layer ahead.
    chunked_loss: head and loss run over chunks of the tokens, with their gradients in the forward pass; logits of one chunk exist
        at a time (arXiv 2410.10989).
    ep_overlap: the forward pass of a micro-batch and the backward pass of another run together, layer by layer, so that each one's
        exchanges between experts overlap with the other's computation (Megatron-Core: ``overlap_moe_expert_parallel_comm``;
        DualPipe: arXiv 2412.19437, section 3.2.1).
    """

    micro_batch: int = 1
    recompute: str = "none"
    reshard_after_forward: bool | str = True
    reshard_group_size: int = 1
    sequence_parallel: bool = False
    loss_parallel: bool = False
    reduce_dtype: str = "fp32"
    no_sync: bool = False
    offload: str = "none"
    pp_schedule: str = "1f1b"
    pp_virtual_stages: int = 1
    recompute_budget_percent: int = 50
    compile: bool = False
    float8: str = "none"
    float8_all_gather: bool = False
    comm_hook: str = "none"
    optimizer_in_backward: bool = False
    async_optimizer_step: bool = False
    saved_operations: str = added(SAVED_OPERATIONS[0])
    activation_offload: bool = added(False)
    chunked_loss: bool = added(False)
    ep_overlap: bool = added(False)

    def violations(self, layout: Layout, model: ModelShape, workload: Workload) -> Iterator[str]:
        """Constraints that these knobs violate together with the layout, each as a sentence with the values."""
        for name, choices in CHOICES.items():
            if not any(getattr(self, name) is choice or getattr(self, name) == choice for choice in choices):
                yield f"{name} {getattr(self, name)} is not one of {', '.join(map(str, choices))}"
        if min(self.micro_batch, self.reshard_group_size, self.pp_virtual_stages, self.recompute_budget_percent) < 1:
            yield "micro_batch, reshard_group_size, pp_virtual_stages and recompute_budget_percent are at least 1"
            return
        if workload.global_batch % (layout.data_ranks * self.micro_batch):
            yield (
                f"data ranks {layout.data_ranks} x micro_batch {self.micro_batch} must divide global_batch {workload.global_batch}"
            )
        if self.reshard_after_forward == "subgroup":
            yield from self._subgroup_violations(layout)
        yield from self._streaming_violations(layout)
        if layout.tp == 1 and (self.sequence_parallel or self.loss_parallel):
            yield "sequence_parallel and loss_parallel need tp above 1"
        if self.loss_parallel and model.vocab_size % layout.tp:
            yield f"loss_parallel needs tp {layout.tp} to divide vocab_size {model.vocab_size}"
        if self.chunked_loss and layout.tp > 1 and not self.loss_parallel:
            yield f"chunked_loss keeps logits sharded over tp {layout.tp}: loss_parallel must be true"
        if self.ep_overlap:
            yield from self._overlap_violations(layout, workload)
        yield from self._arithmetic_violations(layout, workload)
        yield from self._pipeline_violations(layout, model, workload)

    def _subgroup_violations(self, layout: Layout) -> Iterator[str]:
        size, ranks = self.reshard_group_size, layout.fsdp_ranks
        if size < 2 or ranks % size or size == ranks:
            yield f"reshard_group_size {size} must be a true divisor of dp_shard x cp = {ranks}"
        if layout.tp > 1:
            # torch 2.13: "Resharding to smaller mesh is not supported for DTensor parameters yet"
            yield f"reshard_after_forward subgroup needs tp 1, not {layout.tp}: FSDP2 cannot regroup shards that tp has split"
        if layout.ep > 1:
            # torch refuses this too, after a hang: expert parameters are sharded over other process groups than the rest
            yield f"reshard_after_forward subgroup needs ep 1, not {layout.ep}: FSDP2 cannot regroup experts that ep has split"

    def _streaming_violations(self, layout: Layout) -> Iterator[str]:
        if self.offload == "streamed" and layout.pp < layout.world_size:
            yield "offload streamed assigns stages to single devices: pp must span all devices"
        if self.offload == "streamed" and self.recompute != "full":
            yield f"offload streamed keeps inputs of layers only: recompute must be full, not {self.recompute}"
        if self.async_optimizer_step and self.offload != "streamed":
            yield f"async_optimizer_step needs offload streamed, not {self.offload}: only there the hosts update"
        if self.activation_offload and self.offload == "streamed":
            yield "offload streamed keeps inputs of layers in host memory by itself: activation_offload must be false"

    def _overlap_violations(self, layout: Layout, workload: Workload) -> Iterator[str]:
        """Violations of ``ep_overlap`` (megatron/core/transformer/transformer_config.py, core_v0.19)."""
        if layout.ep == 1:
            yield "ep_overlap needs ep above 1: without it no tokens travel between ranks"
        if self.recompute not in ("none", "selective"):
            yield f"ep_overlap pairs single passes of a layer: recompute must be none or selective, not {self.recompute}"
        if layout.pp > 1 and self.pp_schedule not in PAIRED:
            yield f"ep_overlap needs a schedule that pairs passes ({' or '.join(PAIRED)}) with pp above 1, not {self.pp_schedule}"
        if workload.global_batch < 2 * layout.data_ranks * self.micro_batch:
            yield "ep_overlap pairs passes of two micro-batches: a step must have at least 2"

    def _arithmetic_violations(self, layout: Layout, workload: Workload) -> Iterator[str]:
        if self.recompute_budget_percent > 100:
            yield f"recompute_budget_percent {self.recompute_budget_percent} is a share: at most 100"
        if self.recompute == "budget" and not (self.compile and self.recompute_budget_percent < 100):
            yield "recompute budget is the compiler's: it needs compile, and recompute_budget_percent below 100"
        if self.float8 != "none" and (workload.precision != "bf16" or workload.train != "full"):
            yield f"float8 {self.float8} needs precision bf16 and train full, not {workload.precision} and {workload.train}"
        if self.float8_all_gather and (self.float8 != "tensorwise" or layout.fsdp_ranks == 1):
            # torchao: a row of a shard is only a part of a row of the whole weight
            yield "float8_all_gather needs float8 tensorwise and sharded parameters"
        ddp = layout.dp_replicate > 1 and layout.fsdp_ranks == 1 and layout.tp == 1 and layout.pp == 1
        if self.comm_hook != "none" and not (ddp and self.reduce_dtype == "fp32"):
            yield f"comm_hook {self.comm_hook} needs plain replicas (only dp_replicate above 1) and reduce_dtype fp32"
        if self.optimizer_in_backward:
            on_host = self.offload in ("optimizer", "all")
            once = workload.global_batch == layout.data_ranks * self.micro_batch
            if self.offload != "streamed" and not (layout.pp == layout.ep == 1 and (on_host or once)):
                law = "pp 1 and ep 1, and offload optimizer or all where a step has several micro-batches"
                yield f"optimizer_in_backward needs {law}; or offload streamed"
            if self.async_optimizer_step:
                yield "async_optimizer_step is of the gradients of the step before: optimizer_in_backward must be false"

    def _pipeline_violations(self, layout: Layout, model: ModelShape, workload: Workload) -> Iterator[str]:
        if layout.pp == 1:
            if self.pp_virtual_stages > 1:
                yield f"pp_virtual_stages {self.pp_virtual_stages} needs pp above 1"
            return
        if self.pp_schedule in LOOPED and self.pp_virtual_stages < 2:
            yield f"{self.pp_schedule} needs pp_virtual_stages above 1"
        if self.pp_schedule in V_SHAPED and self.pp_virtual_stages != 2:
            yield f"{self.pp_schedule} needs pp_virtual_stages 2, not {self.pp_virtual_stages}"
        if self.pp_schedule in ("gpipe", "1f1b") and self.pp_virtual_stages > 1:
            yield f"pp_virtual_stages {self.pp_virtual_stages} needs a schedule that loops, not {self.pp_schedule}"
        if self.pp_schedule in ZERO_BUBBLE and self.compile:
            law = "computes gradients of weights in a separate pass, which a compiled layer does not support"
            yield f"{self.pp_schedule} {law}: compile must be false"
        if self.pp_schedule in ZERO_BUBBLE and self.recompute == "selective":
            # torch 2.13: "Trying to backward an extra time", whatever is saved
            law = "has two backward passes, and the tensors that selective recomputation saved serve one"
            yield f"{self.pp_schedule} {law}: recompute must not be selective"
        if self.pp_schedule in ZERO_BUBBLE and layout.fsdp_ranks > 1 and self.reshard_after_forward is not False:
            # torch 2.13: such parameters silently have no gradient after the step
            law = "computes gradients of weights in a separate pass; FSDP2 loses them if it has resharded in between"
            yield f"{self.pp_schedule} {law}: reshard_after_forward must be false, not {self.reshard_after_forward}"
        if self.pp_schedule in ZERO_BUBBLE and self.activation_offload:
            law = "uses the saved activations of a layer twice, and keeps them on the device in between"
            yield f"{self.pp_schedule} {law}: activation_offload must be false"
        if (layout.data_ranks * layout.cp > 1 or self.offload == "all") and not self.no_sync:
            yield "a pipeline reduces gradients after its last micro-batch: no_sync must be true with pp above 1"
        if layout.pp * self.pp_virtual_stages > model.layers:
            yield f"pp x pp_virtual_stages = {layout.pp * self.pp_virtual_stages} must not exceed the {model.layers} layers"
        micro_batches = workload.global_batch // (layout.data_ranks * self.micro_batch)
        least = least_micro_batches(self.pp_schedule, layout.pp)
        if micro_batches < least:
            yield f"{self.pp_schedule} needs at least {least} micro-batches with pp {layout.pp}, not {micro_batches}"
        rounds = max(1, micro_batches // layout.pp)
        if self.pp_schedule in ROUND_BASED and micro_batches % rounds:
            yield f"{self.pp_schedule} runs in rounds: {micro_batches} micro-batches must split evenly into them"


KNOB_NAMES = tuple(item.name for item in fields(Knobs))


@frozen
class Candidate:
    """One complete configuration: layout, knobs and options."""

    layout: Layout
    knobs: Knobs
    options: Options = field(default_factory=Options)

    @cached_property
    def key(self) -> str:
        """Identity in a ledger: first 16 hexadecimal digits of the SHA-256 of its content."""
        return hashlib.sha256(codec.dumps(self).encode()).hexdigest()[:16]

    def accumulation(self, workload: Workload) -> int:
        """Micro-batches per step on each data rank (gradient accumulation)."""
        return workload.global_batch // (self.layout.data_ranks * self.knobs.micro_batch)

    def violations(self, model: ModelShape, workload: Workload, devices: int) -> tuple[str, ...]:
        """Constraints that the candidate violates, each as a sentence; empty when it is legal.

        Knobs are checked only if the layout is legal, options only if both are.
        """
        broken = tuple(self.layout.violations(model, workload, devices))
        broken = broken or tuple(self.knobs.violations(self.layout, model, workload))
        return broken or self.option_violations()

    def option_violations(self) -> tuple[str, ...]:
        """Constraints that the options violate."""
        knobs = self.knobs
        return tuple(self.options.violations(self.layout, sequence_parallel=knobs.sequence_parallel, compiled=knobs.compile))

    def acts(self, option: str, model: ModelShape) -> bool:
        """Whether an option has an effect, given the other settings and the model."""
        offload, compiled = self.knobs.offload, self.knobs.compile
        return acts(
            option, self.layout,
            offloads=offload != "none", streamed=offload == "streamed", compiled=compiled, experts=model.moe is not None,
        )  # fmt: skip
