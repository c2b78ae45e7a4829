"""Streamed stages: all state lives in host memory, and stages travel to the devices one after the other (arXiv 2604.27085).

A stage is one layer, the embedding, or the head. Stages are dealt to the ranks in turn. Each is copied to its device once forward
and once backward, serves all micro-batches of a round, and the next one is copied meanwhile. Between the two passes only a stage's
inputs are kept, on the host; the backward pass computes the rest again. Gradients are summed on the device, in the type that they
are reduced in, and go back to the host, where the optimizer works: after the passes, or beside them, stage by stage.
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
from strategist_runtime.measure.spans import AGAIN, HOSTS, span
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
"""A stage without memory, and its first values, on some device."""

DOWN, UP = 0, 1
"""Directions of messages: to a higher rank, and to a lower one. Each has a communicator of its own: over one for both, two ranks
that send to each other would wait for each other."""


def stages(plan: Plan) -> list[StageSpec]:
    """All stages in the order of the model."""
    layers = plan.model.layers
    between = [StageSpec(layers=range(index, index + 1), embedding=False, head=False) for index in range(layers)]
    embedding = StageSpec(layers=range(0), embedding=True, head=False)
    return [embedding, *between, StageSpec(layers=range(layers, layers), embedding=False, head=True)]


def parts(plan: Plan, rank: int, settings: TrialSettings, device: torch.device, make: Make, fill: Fill) -> tuple[Decoder, ...]:
    """The stages of one rank with their first weights, on the host; they turn positions on the device."""
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
    """A module on the host, and while it is its turn its weights on the device.

    ``stored`` are the weights as they travel, in the type that is computed in; ``sums`` the gradients on the device.
    """

    number: int
    module: nn.Module
    stored: dict[str, Tensor]
    weights: dict[str, Copy] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)

    def load(self, lane: Lane) -> None:
        """Begins the copy to the device."""
        if not self.weights:
            self.weights = {name: lane.to_device(Copy(tensor=tensor)) for name, tensor in self.stored.items()}

    def unload(self) -> None:
        self.weights, self.sums = {}, {}

    def forward(self, x: Tensor, part: Batch) -> Tensor:
        """What the stage makes of a micro-batch; nothing is kept for a backward pass."""
        weights = {name: copy.on_device() for name, copy in self.weights.items()}
        with torch.no_grad():
            result: Tensor = functional_call(self.module, weights, (x,), part.extras())
        return result

    def leaves(self) -> dict[str, Tensor]:
        """The weights as autograd's leaves, those that are trained."""
        trained = {name for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        return {name: copy.on_device().detach().requires_grad_(name in trained) for name, copy in self.weights.items()}

    def add(self, gradients: dict[str, Tensor], dtype: torch.dtype) -> None:
        for name, gradient in gradients.items():
            if name in self.sums:
                self.sums[name].add_(gradient)
            else:
                self.sums[name] = gradient.to(dtype)

    def refresh(self) -> None:
        """After an update: what travels is what the optimizer has made of it."""
        for name, parameter in self.module.named_parameters():
            if key_of(self.stored[name].untyped_storage()) != key_of(parameter.untyped_storage()):
                self.stored[name].copy_(parameter.data)


class Streaming:
    """Runs the forward and backward passes of all micro-batches of a step on one rank.

    ``update_at_once`` updates a parameter by its gradient. Where it is given, a thread beside the passes does so with each stage
    whose last gradients have come back; a stage that is through is not used again in this step.
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
        self.inputs = Lane(device)  # of micro-batches, which would wait for the weights of the next stage
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
        """The mean loss of the rows; 0 on ranks without the head. Gradients are then in the host's parameters."""
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
        if self.update_at_once is not None:  # the rest: ends that are one weight
            for parameter in self.gradients:
                self.update_at_once(parameter)
            self.refresh()
        self.gradients = {}
        return total

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean loss of the rows, forward only; 0 on ranks without the head. A late update goes on meanwhile."""
        micro_batches = list(batch.micro_batches(self.plan.candidate.knobs.micro_batch))
        total = torch.zeros((), device=self.device)
        for stage, following in _in_turn(self.stages):
            self._load(stage, following)
            self._forward(stage, micro_batches)
            if stage.number == self.count - 1:
                for index, part in enumerate(micro_batches):
                    total += self.loss(stage.forward(self._input(stage, index, part.tokens), part), part.targets)
            stage.unload()
        self._end_sends()
        self.kept.clear()
        return total

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Updates with the gradients in the parameters, and takes them away; a late update goes on beside the next step."""
        if self.late and self.updater is not None:
            self.updating = [self.updater.submit(_update, optimizer)]
            return
        _update(optimizer)
        if self.update_at_once is None:
            self.refresh()

    def finish(self) -> None:
        """Waits for updates that run beside passes; from now on the devices get their parameters."""
        with span(HOSTS):
            for update in self.updating:
                update.result()
        if self.updating and self.late:
            self.refresh()
        self.updating = []

    def refresh(self) -> None:
        """After an update of all stages."""
        for stage in self.stages:
            stage.refresh()

    def _stored(self, part: nn.Module) -> dict[str, Tensor]:
        """Parameters in the type of computation, page-locked where a device will fetch them."""
        late = self.plan.candidate.knobs.async_optimizer_step  # what travels must not change under way
        pinned = self.device.type == "cuda" and self.plan.candidate.options.pin_memory
        found = {}
        for name, parameter in part.named_parameters():
            kept = parameter.data.to(self.dtype, copy=late)
            found[name] = kept.pin_memory() if pinned else kept
        return found

    def _round(self, micro_batches: list[Batch], *, last: bool) -> Tensor:
        for stage, following in _in_turn(self.stages):
            self._load(stage, following)
            self._forward(stage, micro_batches)
            if following is not None:  # the last one is the first of the way back
                stage.unload()
        total = torch.zeros((), device=self.device)
        for stage, following in _in_turn(self.stages[::-1]):
            self._load(stage, following)
            total += self._backward(stage, micro_batches)
            self._settle(last=last)  # of the stage before, meanwhile
            self._give_back(stage)
            stage.unload()
        self._settle(last=last)
        return total

    def _load(self, stage: Stage, following: Stage | None) -> None:
        """Begins the copy of a stage and of the one that follows it, when that before the last one has left the device."""
        self.turns.begin()
        stage.load(self.incoming)
        if following is not None:
            following.load(self.incoming)

    def _forward(self, stage: Stage, micro_batches: list[Batch]) -> None:
        for index, part in enumerate(micro_batches):
            self.micro_turns.begin()
            x = part.tokens if stage.number == 0 else self._input(stage, index, part.tokens)
            if stage.number < self.count - 1:  # the head goes forward when it goes backward
                self._pass_on(stage.number + 1, index, stage.forward(x, part), self.kept)

    def _input(self, stage: Stage, index: int, tokens: Tensor) -> Tensor:
        """What the stage before made of a micro-batch; it is kept for the way back."""
        key = (stage.number, index)
        if key in self.kept:  # by a stage of this rank
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
            head = stage.number == self.count - 1  # its first forward pass; the others had theirs
            with nullcontext() if head else span(AGAIN):
                y = functional_call(stage.module, leaves, (x,), part.extras())
            if head:
                y, coming = self.loss(y, part.targets), None
                total += y.detach()
            else:
                coming = self._gradient(stage, index, y)
            inputs = ([] if kept is None else [x]) + list(trained.values())
            found = list(torch.autograd.grad(y, inputs, coming)) if inputs else []  # a frozen embedding learns nothing
            if kept is not None:
                self._pass_on(stage.number - 1, index, found.pop(0), self.returned)
            stage.add(dict(zip(trained, found, strict=True)), reduce_dtype(self.plan))
            del found  # else these gradients lie beside the next micro-batch's
        return total

    def _gradient(self, stage: Stage, index: int, like: Tensor) -> Tensor:
        """Of the stage's output, from the stage behind it."""
        if (copy := self.returned.pop((stage.number, index), None)) is not None:
            return self.inputs.to_device(copy).on_device()
        return self._received(stage.number + 1, torch.empty_like(like))

    def _give_back(self, stage: Stage) -> None:
        """The sums of a round's gradients begin their way to the host."""
        self.given_back = stage, {name: self.outgoing.to_host(total) for name, total in stage.sums.items()}

    def _settle(self, *, last: bool) -> None:
        """Gradients that went to the host are the parameters', those of later rounds added; of the ``last`` one they are whole."""
        if self.given_back is None:
            return
        (stage, copies), self.given_back = self.given_back, None
        parameters = dict(stage.module.named_parameters())
        for parameter, copy in ((parameters[name], copy) for name, copy in copies.items()):
            gradient = copy.on_host().to(parameter.dtype)
            before = self.gradients.get(parameter)
            self.gradients[parameter] = gradient if before is None else before.add_(gradient)
        ends = (0, self.count - 1) if self.ends is not None else ()  # whose gradients are still to be summed
        if last and self.updater is not None and self.update_at_once is not None and stage.number not in ends:
            whole = {parameters[name]: self.gradients.pop(parameters[name]) for name in copies}
            self.updating.append(self.updater.submit(_update_stage, stage, whole, self.update_at_once))

    def _pass_on(self, to: int, index: int, value: Tensor, here: dict[tuple[int, int], Copy]) -> None:
        """Hands a micro-batch's tensor to another stage, of this rank or another."""
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


def _in_turn(row: Sequence[Stage]) -> Iterator[tuple[Stage, Stage | None]]:
    """Each stage with the one that follows it."""
    yield from zip(row, [*row[1:], None], strict=True)
