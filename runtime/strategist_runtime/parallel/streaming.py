"""Streamed stages: all state is stored in host memory, and stages are copied to the devices one after the other (arXiv 2604.27085).

A stage is one layer, the embedding, or the head. Stages are assigned to the ranks round-robin. A stage is copied to its device
once for the forward and once for the backward pass, and processes all micro-batches of a round there; the next stage is copied
meanwhile. Between the two passes only the inputs of a stage are kept, on the host; the backward pass recomputes everything else.
Gradients are accumulated on the device in the reduction type, then copied to the host, where the optimizer runs: after the
passes, or concurrently with them, stage by stage.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from strategist.contract.measurement import TrialSettings
from strategist.contract.pipeline_stages import stream_rounds
from strategist.contract.plan import Plan
from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.compilation import compile_layers
from strategist_runtime.data.batch import Batch
from strategist_runtime.measure.spans import HOST_UPDATE, RECOMPUTE, span
from strategist_runtime.mesh import Meshes
from strategist_runtime.model import lora
from strategist_runtime.model.decoder import Decoder, StageSpec
from strategist_runtime.model.loss import Loss
from strategist_runtime.parallel.copy_streams import Copy, CopyStream, CopyThrottle
from strategist_runtime.parallel.embedding_and_head import EmbeddingAndHead
from strategist_runtime.parallel.experts import apply_expert_parallel, mixtures
from strategist_runtime.precision import compute_dtype, model_dtype, reduce_dtype, store

BuildStage = Callable[[Plan, StageSpec], Decoder]
InitWeights = Callable[[Decoder, Plan, TrialSettings, torch.device], None]
"""``BuildStage`` builds a stage without memory; ``InitWeights`` writes its initial weights on a device."""

DOWN, UP = 0, 1
"""Directions of messages: to a higher rank, and to a lower one. Each has its own communicator: with a shared one, two ranks that
send to each other would deadlock.
"""


def stages(plan: Plan) -> list[StageSpec]:
    """All stages in the order of the model."""
    layers = plan.model.layers
    layer_stages = [StageSpec(layers=range(index, index + 1), embedding=False, head=False) for index in range(layers)]
    embedding = StageSpec(layers=range(0), embedding=True, head=False)
    return [embedding, *layer_stages, StageSpec(layers=range(layers, layers), embedding=False, head=True)]


def parts(
    plan: Plan, rank: int, settings: TrialSettings, device: torch.device, build: BuildStage, init_weights: InitWeights
) -> tuple[Decoder, ...]:
    """The stages of one rank with their initial weights, on the host. Rotary tables and the router's balance buffers are on the
    device.
    """
    built: list[Decoder] = []
    for stage_spec in stages(plan)[rank :: plan.candidate.layout.pp]:
        part = build(plan, stage_spec)
        store(part, plan)
        if plan.workload.train != "full":
            lora.freeze(part, model_dtype(plan))
        if plan.workload.train != "full" and stage_spec.layers:
            lora.add_adapters(part.layers.values(), rank=plan.workload.lora_rank, alpha=settings.lora_alpha, quantised=False)
        if plan.candidate.knobs.compile:
            compile_layers(part, plan.candidate, device)
        apply_expert_parallel(part, plan, Meshes())
        init_weights(part, plan, settings, torch.device("cpu"))
        part.metadata_builder = built[0].metadata_builder if built else part.metadata_builder.to(device)
        for layer in mixtures(part):
            layer.router.move_balance_to(device)
        built.append(part)
    return tuple(built)


@dataclass(kw_only=True)
class Stage:
    """A module on the host, with a copy of its weights on the device while the stage runs.

    ``host_weights`` are the weights on the host in the compute type, as they are copied; ``device_weights`` are their copies on the
    device, and ``gradient_sums`` the accumulated gradients there.
    """

    index: int
    module: nn.Module
    host_weights: dict[str, Tensor]
    device_weights: dict[str, Copy] = field(default_factory=dict)
    gradient_sums: dict[str, Tensor] = field(default_factory=dict)

    def load(self, stream: CopyStream) -> None:
        """Starts the copy to the device, unless the stage is there."""
        if not self.device_weights:
            self.device_weights = {name: stream.to_device(Copy(tensor=tensor)) for name, tensor in self.host_weights.items()}

    def unload(self) -> None:
        self.device_weights, self.gradient_sums = {}, {}

    def forward(self, x: Tensor, extras: dict[str, Tensor]) -> Tensor:
        """The stage's output for a micro-batch; nothing is saved for a backward pass."""
        weights = {name: copy.on_device() for name, copy in self.device_weights.items()}
        with torch.no_grad():
            result: Tensor = functional_call(self.module, weights, (x,), extras)
        return result

    def leaves(self) -> dict[str, Tensor]:
        """The weights on the device as autograd leaves; those that are trained require gradients."""
        trained = {name for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        return {name: copy.on_device().detach().requires_grad_(name in trained) for name, copy in self.device_weights.items()}

    def add_gradients(self, gradients: dict[str, Tensor], dtype: torch.dtype) -> None:
        for name, gradient in gradients.items():
            if name in self.gradient_sums:
                self.gradient_sums[name].add_(gradient)
            else:
                self.gradient_sums[name] = gradient.to(dtype)

    def refresh(self) -> None:
        """Copies updated parameters into ``host_weights``, unless both share their memory."""
        for name, parameter in self.module.named_parameters():
            if key_of(self.host_weights[name].untyped_storage()) != key_of(parameter.untyped_storage()):
                self.host_weights[name].copy_(parameter.data)


class Streaming:
    """Runs the forward and backward passes of all micro-batches of a step on one rank.

    ``update_parameter`` updates a parameter by its gradient. If given, a background thread calls it for each stage as soon as the
    last gradients of the stage are on the host; the step does not use that stage again.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        plan: Plan,
        device: torch.device,
        loss: Loss,
        update_parameter: Callable[[nn.Parameter], None] | None = None,
    ) -> None:
        self.plan, self.device, self.loss = plan, device, loss
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.stage_count = len(stages(plan))
        self.dtype = compute_dtype(plan)
        indices = range(self.rank, self.stage_count, self.ranks)
        self.stages = [
            Stage(index=index, module=part, host_weights=self._host_weights(part))
            for index, part in zip(indices, parts, strict=True)
        ]
        self.incoming, self.outgoing = CopyStream(device), CopyStream(device)
        self.incoming_inputs = CopyStream(device)  # on ``incoming``, inputs would wait for the weights of the next stage
        self.stage_throttle, self.micro_batch_throttle = CopyThrottle(device), CopyThrottle(device)
        directions = ("down", "up") if self.ranks > 1 else ()
        self.groups: list[dist.ProcessGroup] = [dist.new_group(group_desc=f"mesh_pp_{name}") for name in directions]
        last = (self.stage_count - 1) % self.ranks
        self.tied_weights = EmbeddingAndHead(parts, [(0, last)], device) if plan.model.tied_embeddings else None
        self.sent: list[tuple[dist.Work, Tensor]] = []
        self.pending_copies: tuple[Stage, dict[str, Copy]] | None = None
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.update_parameter, self.async_step = update_parameter, plan.candidate.knobs.async_optimizer_step
        self.update_executor = ThreadPoolExecutor(1) if self.async_step or update_parameter else None
        self.updates: list[Future[None]] = []
        self.stage_inputs: dict[tuple[int, int], Copy] = {}
        self.output_gradients: dict[tuple[int, int], Copy] = {}

    def run(self, batch: Batch) -> Tensor:
        """The mean loss of the rows; 0 on ranks without the head. Afterwards the parameters on the host have their gradients."""
        size = self.plan.candidate.knobs.micro_batch
        micro_batches = list(batch.micro_batches(size))
        total = torch.zeros((), device=self.device)
        rounds = stream_rounds(len(micro_batches), self.ranks)
        round_size = -(-len(micro_batches) // rounds)
        for first in range(0, len(micro_batches), round_size):
            total += self._run_round(micro_batches[first : first + round_size], last=first + round_size >= len(micro_batches))
        self._wait_for_sends()
        self.finish()
        for parameter, gradient in self.gradients.items():
            parameter.grad = gradient
        if self.tied_weights is not None:
            self.tied_weights.sum_gradients()
        if self.update_parameter is not None:  # the rest: tied embedding and head
            for parameter in self.gradients:
                self.update_parameter(parameter)
            self.refresh()
        self.gradients = {}
        return total

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean loss of the rows, forward only; 0 on ranks without the head. An asynchronous optimizer step continues
        meanwhile.
        """
        micro_batches = list(batch.micro_batches(self.plan.candidate.knobs.micro_batch))
        total = torch.zeros((), device=self.device)
        for stage, next_stage in _with_next(self.stages):
            self._load(stage, next_stage)
            self._forward(stage, micro_batches)
            if stage.index == self.stage_count - 1:
                for index, rows in enumerate(micro_batches):
                    total += self.loss(
                        stage.forward(self._input(stage, index, rows.tokens), rows.extras(targets=self.loss.chunked)), rows.targets
                    )
            stage.unload()
        self._wait_for_sends()
        self.stage_inputs.clear()
        return total

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Runs the optimizer step and clears the gradients; with ``async_optimizer_step`` in the background, during the next
        step's passes.
        """
        if self.async_step and self.update_executor is not None:
            self.updates = [self.update_executor.submit(_update, optimizer)]
            return
        _update(optimizer)
        if self.update_parameter is None:
            self.refresh()

    def finish(self) -> None:
        """Waits for optimizer updates in the background; later copies to the device have the new parameters."""
        with span(HOST_UPDATE):
            for update in self.updates:
                update.result()
        if self.updates and self.async_step:
            self.refresh()
        self.updates = []

    def refresh(self) -> None:
        """Copies the updated parameters of all stages into the weights that are copied to the device."""
        for stage in self.stages:
            stage.refresh()

    def _host_weights(self, part: nn.Module) -> dict[str, Tensor]:
        """Parameters in the compute type, in pinned memory where a CUDA device copies them."""
        copied = self.plan.candidate.knobs.async_optimizer_step  # weights must not change while they are copied
        pinned = self.device.type == "cuda" and self.plan.candidate.options.pin_memory
        weights = {}
        for name, parameter in part.named_parameters():
            weight = parameter.data.to(self.dtype, copy=copied)
            weights[name] = weight.pin_memory() if pinned else weight
        return weights

    def _run_round(self, micro_batches: list[Batch], *, last: bool) -> Tensor:
        for stage, next_stage in _with_next(self.stages):
            self._load(stage, next_stage)
            self._forward(stage, micro_batches)
            if next_stage is not None:  # the last stage stays: the backward pass starts with it
                stage.unload()
        total = torch.zeros((), device=self.device)
        for stage, next_stage in _with_next(self.stages[::-1]):
            self._load(stage, next_stage)
            total += self._backward(stage, micro_batches)
            self._take_gradients(last=last)  # takes over the gradients of the stage before this one
            self._start_gradient_copies(stage)
            stage.unload()
        self._take_gradients(last=last)
        return total

    def _load(self, stage: Stage, next_stage: Stage | None) -> None:
        """Starts the copies of a stage and of the following one, once the device has finished the stage before the previous one."""
        self.stage_throttle.begin()
        stage.load(self.incoming)
        if next_stage is not None:
            next_stage.load(self.incoming)

    def _forward(self, stage: Stage, micro_batches: list[Batch]) -> None:
        for index, rows in enumerate(micro_batches):
            self.micro_batch_throttle.begin()
            x = rows.tokens if stage.index == 0 else self._input(stage, index, rows.tokens)
            if stage.index < self.stage_count - 1:  # the head's forward pass runs together with its backward pass
                self._send(stage.index + 1, index, stage.forward(x, rows.extras(targets=self.loss.chunked)), self.stage_inputs)

    def _input(self, stage: Stage, index: int, tokens: Tensor) -> Tensor:
        """The input of a stage for a micro-batch; it is kept on the host for the backward pass."""
        key = (stage.index, index)
        if key in self.stage_inputs:  # produced by a stage of this rank
            return self.incoming_inputs.to_device(self.stage_inputs[key]).on_device()
        x = self._receive_hidden(stage.index - 1, tokens)
        self.stage_inputs[key] = self.outgoing.to_host(x)
        return x

    def _backward(self, stage: Stage, micro_batches: list[Batch]) -> Tensor:
        total, leaves = torch.zeros((), device=self.device), stage.leaves()
        trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        for index, rows in enumerate(micro_batches):
            self.micro_batch_throttle.begin()
            saved_input = None if stage.index == 0 else self.incoming_inputs.to_device(self.stage_inputs.pop((stage.index, index)))
            x = rows.tokens if saved_input is None else saved_input.on_device().detach().requires_grad_()
            is_head = stage.index == self.stage_count - 1  # the head runs forward now; all others recompute
            with nullcontext() if is_head else span(RECOMPUTE):
                y = functional_call(stage.module, leaves, (x,), rows.extras(targets=self.loss.chunked))
            if is_head:
                y, output_gradient = self.loss(y, rows.targets), None
                total += y.detach()
            else:
                output_gradient = self._output_gradient(stage, index, y)
            inputs = ([] if saved_input is None else [x]) + list(trained.values())
            gradients = list(torch.autograd.grad(y, inputs, output_gradient)) if inputs else []  # empty for a frozen embedding
            if saved_input is not None:
                self._send(stage.index - 1, index, gradients.pop(0), self.output_gradients)
            stage.add_gradients(dict(zip(trained, gradients, strict=True)), reduce_dtype(self.plan))
            del gradients  # otherwise they are alive together with the next micro-batch's gradients
        return total

    def _output_gradient(self, stage: Stage, index: int, like: Tensor) -> Tensor:
        """The gradient of a stage's output, from the following stage; ``like`` is the output."""
        if (copy := self.output_gradients.pop((stage.index, index), None)) is not None:
            return self.incoming_inputs.to_device(copy).on_device()
        return self._receive_into(stage.index + 1, torch.empty_like(like))

    def _start_gradient_copies(self, stage: Stage) -> None:
        """Starts the copy of a round's accumulated gradients to the host."""
        self.pending_copies = stage, {name: self.outgoing.to_host(total) for name, total in stage.gradient_sums.items()}

    def _take_gradients(self, *, last: bool) -> None:
        """Adds the gradients that were copied to the host to those of earlier rounds; after the ``last`` round they are
        complete, and a stage may be updated.
        """
        if self.pending_copies is None:
            return
        (stage, copies), self.pending_copies = self.pending_copies, None
        parameters = dict(stage.module.named_parameters())
        for parameter, copy in ((parameters[name], copy) for name, copy in copies.items()):
            gradient = copy.on_host().to(parameter.dtype)
            earlier = self.gradients.get(parameter)
            self.gradients[parameter] = gradient if earlier is None else earlier.add_(gradient)
        tied_stages = (0, self.stage_count - 1) if self.tied_weights is not None else ()  # their gradients are summed later
        if last and self.update_executor is not None and self.update_parameter is not None and stage.index not in tied_stages:
            gradients = {parameters[name]: self.gradients.pop(parameters[name]) for name in copies}
            self.updates.append(self.update_executor.submit(_update_stage, stage, gradients, self.update_parameter))

    def _send(self, stage: int, index: int, value: Tensor, local: dict[tuple[int, int], Copy]) -> None:
        """Hands a micro-batch's tensor to a stage: through host memory on this rank, otherwise by a send."""
        peer = stage % self.ranks
        if peer == self.rank:
            local[stage, index] = self.outgoing.to_host(value)
            return
        value = value.contiguous()
        work = dist.isend(value, peer, group=self._group(self.rank, peer))
        assert work is not None
        self.sent.append((work, value))
        self.sent = [(work, value) for work, value in self.sent if not work.is_completed()]

    def _receive_hidden(self, source: int, tokens: Tensor) -> Tensor:
        shape = (*tokens.shape, self.plan.model.hidden_size)
        return self._receive_into(source, torch.empty(shape, dtype=self.dtype, device=self.device))

    def _receive_into(self, source: int, target: Tensor) -> Tensor:
        peer = source % self.ranks
        dist.recv(target, peer, group=self._group(peer, self.rank))
        return target

    def _group(self, sender: int, receiver: int) -> dist.ProcessGroup:
        return self.groups[DOWN if sender < receiver else UP]

    def _wait_for_sends(self) -> None:
        for work, _ in self.sent:
            work.wait()
        self.sent = []


def _update(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _update_stage(stage: Stage, gradients: dict[nn.Parameter, Tensor], update: Callable[[nn.Parameter], None]) -> None:
    for parameter, gradient in gradients.items():
        parameter.grad = gradient
        update(parameter)
    stage.refresh()


def _with_next(sequence: Sequence[Stage]) -> Iterator[tuple[Stage, Stage | None]]:
    """Each stage with the following one; None after the last."""
    yield from zip(sequence, [*sequence[1:], None], strict=True)
