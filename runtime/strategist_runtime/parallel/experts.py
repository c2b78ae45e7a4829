"""Expert parallelism: each rank holds some of a layer's experts and receives the tokens that are routed to them (arXiv 2006.16668).

The ranks of ``ep`` are taken from dp_shard x cp x tp. With ``etp`` equal to tp, each expert is split over tp, whose ranks have
all tokens of a sequence. With ``etp`` 1, the ranks of tp split the tokens instead, and each counts as a separate rank of ``ep``.
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
from strategist_runtime.model.experts import Combine, Experts, MixtureOfExperts, host_counts

INNER_DIMENSION = {"gate": 1, "up": 1, "down": 2, "gate_bias": 1, "up_bias": 1}
"""The dimension of each stacked parameter that ``etp`` shards: the intermediate size of an expert."""


def apply_expert_parallel(model: nn.Module, plan: Plan, meshes: Meshes) -> None:
    """Applies the plan to every mixture of experts: shards the experts, sets their matmul and balance options, and splits their
    tokens over tp.
    """
    layout, options = plan.candidate.layout, plan.candidate.options
    for layer in mixtures(model):
        experts, router = layer.experts, layer.router
        experts.grouped, experts.alignment = options.grouped_gemm, options.token_alignment
        if options.expert_balance == "auxiliary_loss":
            router.balance_loss = router.moe.balance_coefficient / (plan.accumulation * layout.tp)
        router.sequence_groups = tuple(_sequence_groups(layout, meshes))
        if meshes.experts is not None:
            _distribute_parameters(experts, meshes.experts)
        if layout.ep > 1:
            layer.dispatch = AllToAll(_group(meshes.experts, EXPERT))
        if meshes.expert_data is not None:
            experts.gradient_factor = layout.tp / (layout.ep * layout.etp)
        experts.ffn_shards = layout.etp
        if meshes.tensor is not None:
            _parallelize_over_tp(layer, plan, meshes.tensor)


def mixtures(model: nn.Module) -> Iterator[MixtureOfExperts]:
    """The mixtures of experts of a model, in the order of its layers."""
    return (module for module in model.modules() if isinstance(module, MixtureOfExperts))


class AllToAll:
    """Exchanges rows between ranks that hold equally many experts each; the ranks of ``group`` are in the order of experts.

    The number of rows that each rank sends to each expert is exchanged first, and copied to the host, which sizes the buffers.
    The backward pass makes the reverse exchange. A rank without rows takes part as well.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def __call__(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Combine]:
        ranks = self.group.size()
        received_counts = all_to_all(counts, self.group)  # [source rank x local expert]
        send_sizes, receive_sizes = host_counts(torch.stack((counts, received_counts)).unflatten(1, (ranks, -1)).sum(-1), len(rows))
        received_rows = all_to_all_rows(rows, receive_sizes, send_sizes, self.group)
        local_experts = torch.arange(counts.numel() // ranks, device=rows.device)
        order = local_experts.repeat(ranks).repeat_interleave(received_counts, output_size=sum(receive_sizes)).argsort(stable=True)

        def combine(results: Tensor) -> Tensor:
            return all_to_all_rows(results.index_select(0, order.argsort()), send_sizes, receive_sizes, self.group)

        return received_rows.index_select(0, order), received_counts.unflatten(0, (ranks, -1)).sum(0), combine


def _distribute_parameters(experts: Experts, mesh: DeviceMesh) -> None:
    """Makes the parameters DTensors: experts sharded over ``ep``, the inside of each over ``etp``."""
    names = mesh.mesh_dim_names or ()
    for name, parameter in list(experts.named_parameters(recurse=False)):
        ffn_placement = Shard(INNER_DIMENSION[name]) if name in INNER_DIMENSION else Replicate()
        placements = [Shard(0) if axis == EXPERT else ffn_placement for axis in names]
        experts.register_parameter(name, nn.Parameter(distribute_tensor(parameter, mesh, placements)))


def _sequence_groups(layout: Layout, meshes: Meshes) -> Iterator[dist.ProcessGroup]:
    """Process groups of the ranks that route other tokens of the same sequences."""
    if meshes.context is not None:
        yield meshes.context.get_group()
    if meshes.tensor is not None and layout.etp == 1:
        yield meshes.tensor.get_group()


def _group(mesh: DeviceMesh | None, axis: str) -> dist.ProcessGroup:
    assert mesh is not None
    return mesh.get_group(axis)


def _parallelize_over_tp(layer: MixtureOfExperts, plan: Plan, mesh: DeviceMesh) -> None:
    """Applies tensor parallelism to a mixture: the router is replicated. Shared experts are replicated with ``etp`` 1, where tp
    splits the tokens; otherwise they are split like routed ones.
    """
    residual_placement = Shard(1) if plan.candidate.knobs.sequence_parallel else Replicate()
    router = layer.router
    for name, parameter in list(router.named_parameters(recurse=False)):
        router.register_parameter(name, nn.Parameter(distribute_tensor(parameter, mesh, [Replicate()])))
    if plan.candidate.layout.etp == 1:
        styles: dict[str, ParallelStyle] = {"": _sequence_split(residual_placement)}
        if layer.shared is not None:
            styles["shared"] = ShardedTokens()
    else:
        styles = {"": ReplicatedTokens(residual_placement)}
        if layer.shared is not None:
            styles |= {
                "shared": ReplicatedInput(),
                "shared.up": ColwiseParallel(),
                "shared.down": RowwiseParallel(output_layouts=Partial()),
            }
            styles |= {"shared.gate": ColwiseParallel()} if layer.shared.gate is not None else {}
    for name, style in styles.items():
        parallelize_module(layer.get_submodule(name), mesh, style)


def _sequence_split(residual_placement: Placement) -> ParallelStyle:
    """Gives each rank of tp a part of every sequence, as sequence parallelism does already."""
    return PrepareModuleInputOutput(
        input_layouts=(residual_placement,),
        desired_input_layouts=(Shard(1),),
        use_local_input=True,
        output_layouts=(Shard(1),),
        desired_output_layouts=(residual_placement,),
        use_local_output=True,
    )


class ReplicatedTokens(ParallelStyle):
    """Gives each rank of tp all tokens; its outputs are partial sums, and so are the gradients of its inputs."""

    def __init__(self, residual_placement: Placement) -> None:
        self.residual_placement = residual_placement

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def before(_module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
            x = arguments[0]
            x = x if isinstance(x, DTensor) else DTensor.from_local(x, device_mesh, [self.residual_placement], run_check=False)
            return (x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]),)

        def after(_module: nn.Module, _arguments: tuple[Any, ...], y: Tensor) -> Tensor:
            return (
                DTensor.from_local(y, device_mesh, [Partial()], run_check=False)
                .redistribute(placements=[self.residual_placement])
                .to_local()
            )

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module


class ShardedTokens(ParallelStyle):
    """Replicated parameters; each rank takes its own part of every sequence, as rows of tokens: torch 2.11 has no matmul for
    DTensors whose sequence dimension is sharded.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def before(_module: nn.Module, arguments: tuple[Any, ...], mesh: DeviceMesh) -> tuple[DTensor]:
            return (DTensor.from_local(arguments[0].flatten(0, -2), mesh, [Shard(0)], run_check=False),)

        def after(_module: nn.Module, y: DTensor, _mesh: DeviceMesh) -> Tensor:
            return y.to_local()

        return distribute_module(module, device_mesh, None, before, after)  # type: ignore[arg-type]


class ReplicatedInput(ParallelStyle):
    """Makes an input that is equal on all ranks one DTensor; the gradient that leaves is each rank's partial sum."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def before(_module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
            return (replicated(arguments[0], device_mesh),)

        module.register_forward_pre_hook(before)
        return module
