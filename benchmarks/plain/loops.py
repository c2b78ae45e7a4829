"""Training loops as one writes them by hand: the same calls of torch that a plan's techniques make, and nothing else.

Each takes the model's shape, a micro-batch and the device, and returns a function that trains one step on (tokens, targets).
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from strategist_runtime.compat import context as compat_context
from strategist_runtime.model.attention import Core
from strategist_runtime.model.attention_metadata import MetadataBuilder
from strategist_runtime.model.decoder import Decoder, StageSpec
from strategist_runtime.model.experts import Combine, MixtureOfExperts
from strategist_runtime.model.rotary import rotary_of
from strategist_runtime.weights.seeded import materialise
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.model import ModelShape

Step = Callable[[Tensor, Tensor], float]
CPU = torch.device("cpu")
CLIP = 1.0


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def built(shape: ModelShape, piece: StageSpec | None = None) -> Decoder:
    with torch.device("meta"):
        return Decoder(shape, piece)


def updated(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """Clip, update, and the mean loss of all ranks."""
    nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, foreach=True)


def gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def whole(value: Tensor) -> Tensor:
    """A tensor of which this rank has a part, on each rank."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def ddp(shape: ModelShape, seq_len: int, micro_batch: int) -> Step:
    model = built(shape)
    materialise(model, shape, seq_len, 0, CPU)
    wrapped = DistributedDataParallel(model)
    optimizer = optimizer_of(wrapped)

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = cross_entropy(wrapped(tokens), targets)
        loss.backward()
        return updated(wrapped, optimizer, loss.detach())

    return step


def fsdp(
    shape: ModelShape,
    seq_len: int,
    micro_batch: int,
    *,
    compute: torch.dtype = torch.float32,
    recompute: bool = False,
    offload: bool = False,
    replicas: int = 1,
) -> Step:
    """Of as many micro-batches as a step brings; gradients meet after the last one."""
    model, ranks = built(shape), dist.get_world_size()
    sizes = {"replicate": replicas, "shard": ranks // replicas} if replicas > 1 else {"shard": ranks}
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)
    where = CPUOffloadPolicy(pin_memory=False) if offload else OffloadPolicy()
    if recompute:
        for name, layer in model.layers.items():
            model.layers[name] = checkpoint_wrapper(layer, preserve_rng_state=False)
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh, mp_policy=policy, offload_policy=where)
    sharded = fully_shard(model, mesh=mesh, reshard_after_forward=False, mp_policy=policy, offload_policy=where)
    materialise(model, shape, seq_len, 0, CPU)
    optimizer = optimizer_of(model)

    def step(tokens: Tensor, targets: Tensor) -> float:
        total, count = torch.zeros(()), len(tokens) // micro_batch
        for index, (rows, wanted) in enumerate(zip(tokens.split(micro_batch), targets.split(micro_batch), strict=True)):
            sharded.set_requires_gradient_sync(index == count - 1)
            loss = cross_entropy(model(rows), wanted) / count
            loss.backward()
            total += loss.detach()
        return updated(model, optimizer, total)

    return step


def ring(shape: ModelShape, seq_len: int, micro_batch: int) -> Step:
    """Context parallelism, heads and tails on each rank, as which the rows come; FSDP2 brings the gradients together."""
    model, mesh = built(shape), init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    for module in model.modules():
        if isinstance(module, Core):
            compat_context.parallelize_attention(module, mesh, "sdpa", "allgather")
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    materialise(model, shape, seq_len, 0, CPU)
    order = compat_context.head_tail_order(seq_len, mesh.size(), CPU)
    model.metadata_builder = MetadataBuilder(rotary_of(shape, seq_len, CPU), order, rank=mesh.get_local_rank(), ranks=mesh.size())
    optimizer = optimizer_of(model)

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = cross_entropy(model(tokens), targets)
        loss.backward()
        return updated(model, optimizer, loss.detach())

    return step


def experts(shape: ModelShape, seq_len: int, micro_batch: int) -> Step:
    """Each rank holds an equal part of every layer's experts, to which all ranks send rows; FSDP2 shards everything else, and takes
    the experts as the one shard that they are."""
    model, ranks = built(shape), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("shard",))
    expert_mesh = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("whole", "ep"), backend_override={"ep": "gloo"})
    for layer in model.layers.values():
        mixture = layer.feed_forward
        assert isinstance(mixture, MixtureOfExperts)
        for name, parameter in list(mixture.experts.named_parameters()):
            shard = distribute_tensor(parameter, expert_mesh["ep"], [Shard(0)])
            mixture.experts.register_parameter(name, nn.Parameter(shard))
        mixture.dispatch = partial(exchanged, expert_mesh.get_group("ep"))
        mixture.router.balance_loss = mixture.router.moe.balance_coefficient
        fully_shard(mixture.experts, mesh=expert_mesh["whole"])
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    materialise(model, shape, seq_len, 0, CPU)
    expert_parameters = [parameter for name, parameter in model.named_parameters() if ".experts." in name]
    others = [parameter for name, parameter in model.named_parameters() if ".experts." not in name]
    optimizer = torch.optim.AdamW([{"params": others}, {"params": expert_parameters}], lr=LEARNING_RATE, foreach=True)

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = cross_entropy(model(tokens), targets)
        loss.backward()
        local = [gradient.to_local() for gradient in gradients(expert_parameters) if isinstance(gradient, DTensor)]
        torch._foreach_div_(local, ranks)  # each loss is a mean of one rank
        parts = others, expert_parameters
        norms = [whole(nn.utils.get_total_norm(gradients(part), foreach=True)) for part in parts]
        for part in parts:  # torch takes no norm over two meshes
            nn.utils.clip_grads_with_norm_(part, CLIP, torch.stack(norms).norm(), foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total)
        return total.item() / ranks

    return step


def exchanged(group: dist.ProcessGroup, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Combine]:
    """Rows by expert to where the experts are, by source there, then by expert; and the way back."""
    ranks, coming = group.size(), torch.empty_like(counts)
    dist.all_to_all_single(coming, counts, group=group)
    sent, received = (visits.view(ranks, -1).sum(1).tolist() for visits in (counts, coming))
    order = torch.arange(len(counts) // ranks).repeat(ranks).repeat_interleave(coming).argsort(stable=True)
    here = all_to_all_single_autograd(rows, received, sent, group)[order]
    return (
        here,
        coming.view(ranks, -1).sum(0),
        lambda made: all_to_all_single_autograd(made[order.argsort()], sent, received, group),
    )


def tensor_parallel(shape: ModelShape, seq_len: int, micro_batch: int) -> Step:
    """Two ranks share each tensor, with sequence and loss parallelism; FSDP2, over as many shards as there are pairs, brings the
    gradients of the norms together."""
    model = built(shape)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    outside = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh["tp"], outside)
    inside = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for layer in model.layers.values():
        parallelize_module(layer, mesh["tp"], inside)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"], reshard_after_forward=False)
    materialise(model, shape, seq_len, 0, CPU)
    optimizer = optimizer_of(model)

    def step(tokens: Tensor, targets: Tensor) -> float:
        with loss_parallel():
            loss = cross_entropy(model(tokens), targets)
            loss.backward()
        return updated(model, optimizer, whole(loss.detach()))

    return step


def pipeline(shape: ModelShape, seq_len: int, micro_batch: int) -> Step:
    """1F1B, as many layers a stage; the norm of the whole gradient needs one all-reduce over the stages."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    each, first, last = shape.layers // ranks, rank == 0, rank == ranks - 1
    model = built(shape, StageSpec(layers=range(rank * each, (rank + 1) * each), embedding=first, head=last))
    materialise(model, shape, seq_len, 0, CPU)
    hidden = torch.empty(micro_batch, seq_len, shape.hidden_size, requires_grad=True)
    entering = torch.empty(micro_batch, seq_len, dtype=torch.int64) if first else hidden
    leaving = torch.empty(micro_batch, seq_len, shape.vocab_size) if last else hidden
    stage = PipelineStage(model, rank, ranks, CPU, entering, leaving)
    schedules: dict[int, Schedule1F1B] = {}
    optimizer = optimizer_of(model)

    def step(tokens: Tensor, targets: Tensor) -> float:
        count = len(tokens) // micro_batch
        schedule = schedules.setdefault(count, Schedule1F1B(stage, count, loss_fn=cross_entropy))
        losses: list[Tensor] = []
        schedule.step(*((tokens,) if first else ()), target=targets if last else None, losses=losses, return_outputs=False)
        loss = torch.stack(losses).detach().mean() if last else torch.zeros(())
        squared = torch.stack([gradient.norm() for gradient in gradients(model.parameters())]).square().sum()
        figures = torch.stack((loss, squared))
        dist.all_reduce(figures)
        scale = (CLIP / figures[1].sqrt()).clamp(max=1.0)
        torch._foreach_mul_(gradients(model.parameters()), scale)
        optimizer.step()
        optimizer.zero_grad()
        return figures[0].item()

    return step


LOOPS: dict[str, Callable[[ModelShape, int, int], Step]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "fsdp, accumulation": fsdp,
    "fsdp, bf16": partial(fsdp, compute=torch.bfloat16),
    "fsdp, recompute full": partial(fsdp, recompute=True),
    "fsdp, offload": partial(fsdp, offload=True),
    "hsdp": partial(fsdp, replicas=2),
    "cp ring": ring,
    "ep": experts,
    "tp, sp, loss parallel": tensor_parallel,
    "fsdp x tp": tensor_parallel,
    "pp 1f1b": pipeline,
}
