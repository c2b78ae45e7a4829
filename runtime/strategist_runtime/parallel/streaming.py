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
from strategist_runtime.parallel.copy_streams import Copy, CopyThrottle, Lane
from strategist_runtime.parallel.embedding_and_head import EmbeddingAndHead
from strategist_runtime.parallel.experts import apply_expert_parallel, mixtures
from strategist_runtime.precision import compute_dtype, model_dtype, reduce_dtype, store

Make = Callable[[Plan, StageSpec], Decoder]
Fill = Callable[[Decoder, Plan, TrialSettings, torch.device], None]
"""``Make`` builds a stage without memory; ``Fill`` writes its initial weights on a device."""

DOWN, UP = 0, 1
"""Directions of messages: to a higher rank, and to a lower one. Each has its own communicator: with a shared one, two ranks that
send to each other would deadlock.
"""


def stages(plan: Plan) -> list[StageSpec]:
    """All stages in the order of the model."""
    layers = plan.model.layers
    between = [StageSpec(layers=range(index, index + 1), embedding=False, head=False) for index in range(layers)]
    embedding = StageSpec(layers=range(0), embedding=True, head=False)
    return [embedding, *between, StageSpec(layers=range(layers, layers), embedding=False, head=True)]


def parts(plan: Plan, rank: int, settings: TrialSettings, device: torch.device, make: Make, fill: Fill) -> tuple[Decoder, ...]:
    """The stages of one rank with their initial weights, on the host. Rotary tables and the router's balance buffers are on the
    device.
    """
    found: list[Decoder] = []
    for stage_spec in stages(plan)[rank :: plan.candidate.layout.pp]:
        part = make(plan, stage_spec)
        store(part, plan)
        if plan.workload.train != "full":
            lora.freeze(part, model_dtype(plan))
        if plan.workload.train != "full" and stage_spec.layers:
            lora.add_adapters(part.layers.values(), rank=plan.workload.lora_rank, alpha=settings.lora_alpha, quantised=False)
        if plan.candidate.knobs.compile:
            compile_layers(part, plan.candidate, device)
        apply_expert_parallel(part, plan, Meshes())
        fill(part, plan, settings, torch.device("cpu"))
        part.metadata_builder = found[0].metadata_builder if found else part.metadata_builder.on(device)
        for layer in mixtures(part):
            layer.router.hold_balance_on(device)
        found.append(part)
    return tuple(found)


@dataclass(kw_only=True)
class Stage:
    """A module on the host, with a copy of its weights on the device while the stage runs.

    ``stored`` are the weights on the host in the compute type, as they are copied; ``weights`` their copies on the device;
    ``sums`` the accumulated gradients on the device.
    """

    number: int
    module: nn.Module
    stored: dict[str, Tensor]
    weights: dict[str, Copy] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)

    def load(self, lane: Lane) -> None:
        """Starts the copy to the device, unless the stage is there."""
        if not self.weights:
            self.weights = {name: lane.to_device(Copy(tensor=tensor)) for name, tensor in self.stored.items()}

    def unload(self) -> None:
        self.weights, self.sums = {}, {}

    def forward(self, x: Tensor, extras: dict[str, Tensor]) -> Tensor:
        """The stage's output for a micro-batch; nothing is saved for a backward pass."""
        weights = {name: copy.on_device() for name, copy in self.weights.items()}
        with torch.no_grad():
            result: Tensor = functional_call(self.module, weights, (x,), extras)
        return result

    def leaves(self) -> dict[str, Tensor]:
        """The weights on the device as autograd leaves; those that are trained require gradients."""
        trained = {name for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        return {name: copy.on_device().detach().requires_grad_(name in trained) for name, copy in self.weights.items()}

    def add(self, gradients: dict[str, Tensor], dtype: torch.dtype) -> None:
        for name, gradient in gradients.items():
            if name in self.sums:
                self.sums[name].add_(gradient)
            else:
                self.sums[name] = gradient.to(dtype)

    def refresh(self) -> None:
        """Copies updated parameters into ``stored``, unless both share their memory."""
        for name, parameter in self.module.named_parameters():
            if key_of(self.stored[name].untyped_storage()) != key_of(parameter.untyped_storage()):
                self.stored[name].copy_(parameter.data)


class Streaming:
    """Runs the forward and backward passes of all micro-batches of a step on one rank.

    ``update_at_once`` updates a parameter by its gradient. If given, a background thread calls it for each stage as soon as the
    last gradients of the stage are on the host; the step does not use that stage again.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        plan: Plan,
        device: torch.device,
        loss: Loss,
        update_at_once: Callable[[nn.Parameter], None] | None = None,
    ) -> None:
        self.plan, self.device, self.loss = plan, device, loss
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.count = len(stages(plan))
        self.dtype = compute_dtype(plan)
        numbers = range(self.rank, self.count, self.ranks)
        self.stages = [Stage(number=n, module=part, stored=self._stored(part)) for n, part in zip(numbers, parts, strict=True)]
        self.incoming, self.outgoing = Lane(device), Lane(device)
        self.inputs = Lane(device)  # inputs of micro-batches; on ``incoming`` they would wait for the weights of the next stage
        self.turns, self.micro_turns = CopyThrottle(device), CopyThrottle(device)
        directions = ("down", "up") if self.ranks > 1 else ()
        self.groups: list[dist.ProcessGroup] = [dist.new_group(group_desc=f"mesh_pp_{name}") for name in directions]
        last = (self.count - 1) % self.ranks
        self.ends = EmbeddingAndHead(parts, [(0, last)], device) if plan.model.tied_embeddings else None
        self.sent: list[tuple[dist.Work, Tensor]] = []
        self.given_back: tuple[Stage, dict[str, Copy]] | None = None
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.update_at_once, self.late = update_at_once, plan.candidate.knobs.async_optimizer_step
        self.updater = ThreadPoolExecutor(1) if self.late or update_at_once else None
        self.updating: list[Future[None]] = []
        self.kept: dict[tuple[int, int], Copy] = {}
        self.returned: dict[tuple[int, int], Copy] = {}

    def run(self, batch: Batch) -> Tensor:
        """The mean loss of the rows; 0 on ranks without the head. Afterwards the parameters on the host have their gradients."""
        size = self.plan.candidate.knobs.micro_batch
        micro_batches = list(batch.micro_batches(size))
        total = torch.zeros((), device=self.device)
        rounds = stream_rounds(len(micro_batches), self.ranks)
        served = -(-len(micro_batches) // rounds)
        for first in range(0, len(micro_batches), served):
            total += self._round(micro_batches[first : first + served], last=first + served >= len(micro_batches))
        self._end_sends()
        self.finish()
        for parameter, gradient in self.gradients.items():
            parameter.grad = gradient
        if self.ends is not None:
            self.ends.sum_gradients()
        if self.update_at_once is not None:  # the rest: tied embedding and head
            for parameter in self.gradients:
                self.update_at_once(parameter)
            self.refresh()
        self.gradients = {}
        return total

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean loss of the rows, forward only; 0 on ranks without the head. An asynchronous optimizer step continues
        meanwhile.
        """
        micro_batches = list(batch.micro_batches(self.plan.candidate.knobs.micro_batch))
        total = torch.zeros((), device=self.device)
        for stage, following in _with_following(self.stages):
            self._load(stage, following)
            self._forward(stage, micro_batches)
            if stage.number == self.count - 1:
                for index, part in enumerate(micro_batches):
                    total += self.loss(
                        stage.forward(self._input(stage, index, part.tokens), part.extras(targets=self.loss.chunked)), part.targets
                    )
            stage.unload()
        self._end_sends()
        self.kept.clear()
        return total

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Runs the optimizer step and clears the gradients; with ``async_optimizer_step`` in the background, during the next
        step's passes.
        """
        if self.late and self.updater is not None:
            self.updating = [self.updater.submit(_update, optimizer)]
            return
        _update(optimizer)
        if self.update_at_once is None:
            self.refresh()

    def finish(self) -> None:
        """Waits for optimizer updates in the background; later copies to the device have the new parameters."""
        with span(HOST_UPDATE):
            for update in self.updating:
                update.result()
        if self.updating and self.late:
            self.refresh()
        self.updating = []

    def refresh(self) -> None:
        """Copies the updated parameters of all stages into the weights that are copied to the device."""
        for stage in self.stages:
            stage.refresh()

    def _stored(self, part: nn.Module) -> dict[str, Tensor]:
        """Parameters in the compute type, in pinned memory where a CUDA device copies them."""
        late = self.plan.candidate.knobs.async_optimizer_step  # weights must not change while they are copied
        pinned = self.device.type == "cuda" and self.plan.candidate.options.pin_memory
        found = {}
        for name, parameter in part.named_parameters():
            kept = parameter.data.to(self.dtype, copy=late)
            found[name] = kept.pin_memory() if pinned else kept
        return found

    def _round(self, micro_batches: list[Batch], *, last: bool) -> Tensor:
        for stage, following in _with_following(self.stages):
            self._load(stage, following)
            self._forward(stage, micro_batches)
            if following is not None:  # the last stage stays: the backward pass starts with it
                stage.unload()
        total = torch.zeros((), device=self.device)
        for stage, following in _with_following(self.stages[::-1]):
            self._load(stage, following)
            total += self._backward(stage, micro_batches)
            self._settle(last=last)  # takes over the gradients of the stage before this one
            self._give_back(stage)
            stage.unload()
        self._settle(last=last)
        return total

    def _load(self, stage: Stage, following: Stage | None) -> None:
        """Starts the copies of a stage and of the following one, once the device has finished the stage before the previous one."""
        self.turns.begin()
        stage.load(self.incoming)
        if following is not None:
            following.load(self.incoming)

    def _forward(self, stage: Stage, micro_batches: list[Batch]) -> None:
        for index, part in enumerate(micro_batches):
            self.micro_turns.begin()
            x = part.tokens if stage.number == 0 else self._input(stage, index, part.tokens)
            if stage.number < self.count - 1:  # the head's forward pass runs together with its backward pass
                self._pass_on(stage.number + 1, index, stage.forward(x, part.extras(targets=self.loss.chunked)), self.kept)

    def _input(self, stage: Stage, index: int, tokens: Tensor) -> Tensor:
        """The input of a stage for a micro-batch; it is kept on the host for the backward pass."""
        key = (stage.number, index)
        if key in self.kept:  # produced by a stage of this rank
            return self.inputs.to_device(self.kept[key]).on_device()
        x = self._receive(stage.number - 1, tokens)
        self.kept[key] = self.outgoing.to_host(x)
        return x

    def _backward(self, stage: Stage, micro_batches: list[Batch]) -> Tensor:
        total, leaves = torch.zeros((), device=self.device), stage.leaves()
        trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        for index, part in enumerate(micro_batches):
            self.micro_turns.begin()
            kept = None if stage.number == 0 else self.inputs.to_device(self.kept.pop((stage.number, index)))
            x = part.tokens if kept is None else kept.on_device().detach().requires_grad_()
            head = stage.number == self.count - 1  # the head runs forward now; all others recompute
            with nullcontext() if head else span(RECOMPUTE):
                y = functional_call(stage.module, leaves, (x,), part.extras(targets=self.loss.chunked))
            if head:
                y, coming = self.loss(y, part.targets), None
                total += y.detach()
            else:
                coming = self._gradient(stage, index, y)
            inputs = ([] if kept is None else [x]) + list(trained.values())
            found = list(torch.autograd.grad(y, inputs, coming)) if inputs else []  # empty for a frozen embedding
            if kept is not None:
                self._pass_on(stage.number - 1, index, found.pop(0), self.returned)
            stage.add(dict(zip(trained, found, strict=True)), reduce_dtype(self.plan))
            del found  # otherwise they are alive together with the next micro-batch's gradients
        return total

    def _gradient(self, stage: Stage, index: int, like: Tensor) -> Tensor:
        """The gradient of a stage's output, from the following stage; ``like`` is the output."""
        if (copy := self.returned.pop((stage.number, index), None)) is not None:
            return self.inputs.to_device(copy).on_device()
        return self._received(stage.number + 1, torch.empty_like(like))

    def _give_back(self, stage: Stage) -> None:
        """Starts the copy of a round's accumulated gradients to the host."""
        self.given_back = stage, {name: self.outgoing.to_host(total) for name, total in stage.sums.items()}

    def _settle(self, *, last: bool) -> None:
        """Adds the gradients that were copied to the host to those of earlier rounds; after the ``last`` round they are
        complete, and a stage may be updated.
        """
        if self.given_back is None:
            return
        (stage, copies), self.given_back = self.given_back, None
        parameters = dict(stage.module.named_parameters())
        for parameter, copy in ((parameters[name], copy) for name, copy in copies.items()):
            gradient = copy.on_host().to(parameter.dtype)
            before = self.gradients.get(parameter)
            self.gradients[parameter] = gradient if before is None else before.add_(gradient)
        ends = (0, self.count - 1) if self.ends is not None else ()  # tied embedding and head: their gradients are summed later
        if last and self.updater is not None and self.update_at_once is not None and stage.number not in ends:
            whole = {parameters[name]: self.gradients.pop(parameters[name]) for name in copies}
            self.updating.append(self.updater.submit(_update_stage, stage, whole, self.update_at_once))

    def _pass_on(self, to: int, index: int, value: Tensor, here: dict[tuple[int, int], Copy]) -> None:
        """Hands a micro-batch's tensor to stage ``to``: through host memory on this rank, otherwise by a send."""
        peer = to % self.ranks
        if peer == self.rank:
            here[to, index] = self.outgoing.to_host(value)
            return
        value = value.contiguous()
        work = dist.isend(value, peer, group=self._group(self.rank, peer))
        assert work is not None
        self.sent.append((work, value))
        self.sent = [(work, value) for work, value in self.sent if not work.is_completed()]

    def _receive(self, source: int, tokens: Tensor) -> Tensor:
        shape = (*tokens.shape, self.plan.model.hidden_size)
        return self._received(source, torch.empty(shape, dtype=self.dtype, device=self.device))

    def _received(self, source: int, into: Tensor) -> Tensor:
        peer = source % self.ranks
        dist.recv(into, peer, group=self._group(peer, self.rank))
        return into

    def _group(self, sender: int, receiver: int) -> dist.ProcessGroup:
        return self.groups[DOWN if sender < receiver else UP]

    def _end_sends(self) -> None:
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


def _with_following(row: Sequence[Stage]) -> Iterator[tuple[Stage, Stage | None]]:
    """Each stage with the following one; None after the last."""
    yield from zip(row, [*row[1:], None], strict=True)
