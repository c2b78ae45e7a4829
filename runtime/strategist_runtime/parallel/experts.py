"""Expert parallelism: each rank holds some of a layer's experts and gets the tokens that visit them (arXiv 2006.16668).

Experts unfold from dp_shard x cp x tp. With ``etp`` as wide as tp each expert is split over tp, whose ranks have all tokens of a
sequence; with ``etp`` 1 they share the tokens out instead, and each of them is a rank of its own to ``ep``.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInputOutput,
    RowwiseParallel,
    parallelize_module,
)

from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist_runtime.compat.dtensor import replicated
from strategist_runtime.compat.groups import all_to_all, all_to_all_rows
from strategist_runtime.mesh import EXPERT, Meshes
from strategist_runtime.model.experts import Experts, Home, MixtureOfExperts, host_counts

INSIDE = {"gate": 1, "up": 1, "down": 2, "gate_bias": 1, "up_bias": 1}
"""The dimension of each stacked parameter that counts the elements inside an expert; what ``etp`` splits."""


def apply_expert_parallel(model: nn.Module, plan: Plan, meshes: Meshes) -> None:
    """Lays out the experts of every layer that has any, tells them how a plan wants them multiplied and balanced, and shares out
    their tokens."""
    layout, options = plan.candidate.layout, plan.candidate.options
    for layer in mixtures(model):
        experts, router = layer.experts, layer.router
        experts.grouped, experts.alignment = options.grouped_gemm, options.token_alignment
        if options.expert_balance == "auxiliary_loss":
            router.balance_loss = router.moe.balance_coefficient / (plan.accumulation * layout.tp)
        router.sequence_groups = tuple(_sequence_groups(layout, meshes))
        if meshes.experts is not None:
            _deal_out(experts, meshes.experts)
        if layout.ep > 1:
            layer.exchange = AllToAll(_group(meshes.experts, EXPERT))
        if meshes.expert_data is not None:
            experts.gradient_factor = layout.tp / (layout.ep * layout.etp)
        experts.pieces = layout.etp
        if meshes.tensor is not None:
            _share_out(layer, plan, meshes.tensor)


def mixtures(model: nn.Module) -> Iterator[MixtureOfExperts]:
    """The layers' feed-forwards that are mixtures of experts, in the order of the model."""
    return (module for module in model.modules() if isinstance(module, MixtureOfExperts))


class AllToAll:
    """The exchange of rows between ranks that hold an equal number of experts each; ``group`` in the order of experts.

    How many rows each rank sends to which expert travels first, and to the host, which sizes the buffers. Backward passes take the
    same way in the other direction. A rank without rows takes part.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def __call__(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Home]:
        ranks = self.group.size()
        coming = all_to_all(counts, self.group)  # [source x expert here]
        sent, received = host_counts(torch.stack((counts, coming)).unflatten(1, (ranks, -1)).sum(-1), len(rows))
        arrived = _exchanged(rows, received, sent, self.group)
        here = torch.arange(counts.numel() // ranks, device=rows.device)
        order = here.repeat(ranks).repeat_interleave(coming, output_size=sum(received)).argsort(stable=True)

        def home(results: Tensor) -> Tensor:
            return _exchanged(results.index_select(0, order.argsort()), sent, received, self.group)

        return arrived.index_select(0, order), coming.unflatten(0, (ranks, -1)).sum(0), home


def _exchanged(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    return all_to_all_rows(rows, received, sent, group)


def _deal_out(experts: Experts, mesh: DeviceMesh) -> None:
    """Makes the parameters DTensors: experts over ``ep``, the elements inside each over ``etp``."""
    names = mesh.mesh_dim_names or ()
    for name, parameter in list(experts.named_parameters(recurse=False)):
        inside = Shard(INSIDE[name]) if name in INSIDE else Replicate()
        placements = [Shard(0) if axis == EXPERT else inside for axis in names]
        experts.register_parameter(name, nn.Parameter(distribute_tensor(parameter, mesh, placements)))


def _sequence_groups(layout: Layout, meshes: Meshes) -> Iterator[dist.ProcessGroup]:
    """Of the ranks that route other tokens of the same sequences."""
    if meshes.context is not None:
        yield meshes.context.get_group()
    if meshes.tensor is not None and layout.etp == 1:
        yield meshes.tensor.get_group()


def _group(mesh: DeviceMesh | None, axis: str) -> dist.ProcessGroup:
    assert mesh is not None
    return mesh.get_group(axis)


def _share_out(layer: MixtureOfExperts, plan: Plan, mesh: DeviceMesh) -> None:
    """What tensor parallelism makes of a mixture: a router on every rank; shared experts on every rank where tokens are shared out,
    split like routed ones where each expert is."""
    between = Shard(1) if plan.candidate.knobs.sequence_parallel else Replicate()
    router = layer.router
    for name, parameter in list(router.named_parameters(recurse=False)):
        router.register_parameter(name, nn.Parameter(distribute_tensor(parameter, mesh, [Replicate()])))
    if plan.candidate.layout.etp == 1:
        styles: dict[str, ParallelStyle] = {"": _tokens_shared_out(between)}
        if layer.shared is not None:
            styles["shared"] = ShardedTokens()
    else:
        styles = {"": ReplicatedTokens(between)}
        if layer.shared is not None:
            styles |= {
                "shared": ReplicatedInput(),
                "shared.up": ColwiseParallel(),
                "shared.down": RowwiseParallel(output_layouts=Partial()),
            }
            styles |= {"shared.gate": ColwiseParallel()} if layer.shared.gate is not None else {}
    for name, style in styles.items():
        parallelize_module(layer.get_submodule(name), mesh, style)


def _tokens_shared_out(between: Placement) -> ParallelStyle:
    """Each rank of tp takes a part of every sequence, as it does already with sequence parallelism."""
    return PrepareModuleInputOutput(
        input_layouts=(between,),
        desired_input_layouts=(Shard(1),),
        use_local_input=True,
        output_layouts=(Shard(1),),
        desired_output_layouts=(between,),
        use_local_output=True,
    )


class ReplicatedTokens(ParallelStyle):
    """Each rank of tp takes all tokens, and its results are its share of a sum; so is the gradient of what it took."""

    def __init__(self, between: Placement) -> None:
        self.between = between

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def before(_module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
            x = arguments[0]
            x = x if isinstance(x, DTensor) else DTensor.from_local(x, device_mesh, [self.between], run_check=False)
            return (x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]),)

        def after(_module: nn.Module, _arguments: tuple[Any, ...], y: Tensor) -> Tensor:
            return (
                DTensor.from_local(y, device_mesh, [Partial()], run_check=False).redistribute(placements=[self.between]).to_local()
            )

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module


class ShardedTokens(ParallelStyle):
    """Each rank has all parameters and takes its own part of every sequence, as rows of tokens: torch 2.11 multiplies no sequences
    that are cut."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def before(_module: nn.Module, arguments: tuple[Any, ...], mesh: DeviceMesh) -> tuple[DTensor]:
            return (DTensor.from_local(arguments[0].flatten(0, -2), mesh, [Shard(0)], run_check=False),)

        def after(_module: nn.Module, y: DTensor, _mesh: DeviceMesh) -> Tensor:
            return y.to_local()

        return distribute_module(module, device_mesh, None, before, after)  # type: ignore[arg-type]


class ReplicatedInput(ParallelStyle):
    """What all ranks have alike enters as one DTensor; the gradient that leaves is each rank's share."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def before(_module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
            return (replicated(arguments[0], device_mesh),)

        module.register_forward_pre_hook(before)
        return module
