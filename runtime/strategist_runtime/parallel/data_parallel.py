"""Data parallelism: FSDP2 and HSDP (arXiv 2304.11277), or DDP (arXiv 2006.15704) if nothing is sharded."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.knobs import ZERO_BUBBLE
from strategist.contract.plan import Plan
from strategist_runtime.compat.data_parallel import shard_quantised_weights, shared_reshard_groups
from strategist_runtime.compat.dtensor import local_part
from strategist_runtime.compat.recompute import hide_gathers
from strategist_runtime.model.decoder import ParallelizableModel
from strategist_runtime.parallel.comm_hooks import comm_hook, run_hook
from strategist_runtime.parallel.experts import mixtures
from strategist_runtime.precision import fsdp_policy, reduce_dtype, stored_dtype


def shard(model: ParallelizableModel, plan: Plan, mesh: DeviceMesh, expert_mesh: DeviceMesh | None = None) -> None:
    """Applies FSDP2 to each unit of layers, then to the root (embedding, last norm and head); experts are separate FSDP modules if
    they have their own mesh.

    With ``reshard_root`` unset the root keeps its gathered parameters through the step, as torch does by default: its head is
    the last module of the forward pass and the first of the backward pass.
    """
    options = plan.candidate.options
    layers = list(model.layers.values())
    units = [layers[first : first + options.layers_per_unit] for first in range(0, len(layers), options.layers_per_unit)]
    common: dict[str, Any] = {"mesh": mesh, "mp_policy": fsdp_policy(plan), "offload_policy": _offload_policy(plan)}
    if options.shard_placement == "largest":
        common["shard_placement_fn"] = partial(_largest_divisible, ranks=mesh.size(-1))
    if plan.workload.train == "qlora":
        shard_quantised_weights()
    with shared_reshard_groups():
        if expert_mesh is not None:
            _shard_experts(model, expert_mesh, plan)
        sharded = [fully_shard(unit, **common, reshard_after_forward=_reshard_after_forward(plan)) for unit in units]
        fully_shard(model, **common, reshard_after_forward=options.reshard_root)
    if options.prefetch_units > 1:
        _prefetch(sharded, options.prefetch_units)


def _shard_experts(model: ParallelizableModel, mesh: DeviceMesh, plan: Plan) -> None:
    """Shards whole experts if the size of ``mesh`` divides their number, otherwise the parameters of each expert."""
    placement = partial(_expert_placement, ranks=mesh.size(-1))
    for mixture in mixtures(model):
        fully_shard(
            mixture.experts,
            mesh=mesh,
            mp_policy=fsdp_policy(plan),
            offload_policy=_offload_policy(plan),
            shard_placement_fn=placement,
            reshard_after_forward=_reshard_after_forward(plan),
        )
        hide_gathers(mixture.experts)


def _offload_policy(plan: Plan) -> OffloadPolicy:
    """FSDP2's offload policy: whether shards are stored in host memory, and whether that memory is pinned (CUDA only)."""
    if plan.candidate.knobs.offload != "all":
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=plan.candidate.options.pin_memory and plan.cluster.device.kind == "cuda")


def _expert_placement(parameter: nn.Parameter, ranks: int) -> Shard | None:
    return None if local_part(parameter)[0].shape[0] % ranks == 0 else _largest_divisible(parameter, ranks)


def _prefetch(units: list[list[FSDPModule]], ahead: int) -> None:
    """Makes each unit prefetch the all-gathers of the next ``ahead`` units in forward, and of the previous ones in backward;
    FSDP2 alone prefetches one.
    """
    first_modules = [unit[0] for unit in units]  # all modules of a unit share one FSDP state
    for index, module in enumerate(first_modules):
        module.set_modules_to_forward_prefetch(first_modules[index + 1 : index + 1 + ahead])
        module.set_modules_to_backward_prefetch(first_modules[max(0, index - ahead) : index][::-1])


def _largest_divisible(parameter: nn.Parameter, ranks: int) -> Shard | None:
    """Placement over the longest dimension that ``ranks`` divides (the first of equal ones); None, FSDP2's default of dimension 0,
    if there is none.

    torch shards dimensions other than the first in equal parts only.
    """
    lengths = local_part(parameter)[0].shape
    divisible = [dimension for dimension, length in enumerate(lengths) if length % ranks == 0]
    return Shard(max(divisible, key=lambda dimension: lengths[dimension])) if divisible else None


def replicate(model: ParallelizableModel, plan: Plan) -> nn.Module:
    """Wraps the model in DDP over all ranks. The model must have its weights already: the reducer makes its buckets here."""
    options = plan.candidate.options
    wrapped = DistributedDataParallel(
        model,
        broadcast_buffers=False,
        init_sync=False,
        bucket_cap_mb=options.bucket_cap_mb,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        find_unused_parameters=options.find_unused_parameters,
    )
    knobs = plan.candidate.knobs
    default_reduction = knobs.comm_hook == "none" and reduce_dtype(plan) is stored_dtype(plan)
    if not (default_reduction or knobs.optimizer_in_backward):  # in_backward registers its own hook around this one
        wrapped.register_comm_hook(comm_hook(plan), run_hook)
    return wrapped


@contextmanager
def gradient_sync(model: nn.Module, plan: Plan, *, last: bool) -> Iterator[None]:
    """Context of one micro-batch's forward and backward passes: gradients are reduced over the data-parallel ranks, or with
    ``no_sync`` accumulate unreduced until the ``last`` micro-batch. Parameters with ``reshard_after_forward=False`` then stay
    gathered as well.
    """
    knobs = plan.candidate.knobs
    sync = last or not knobs.no_sync
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(sync)
        model.set_reshard_after_backward(sync or knobs.reshard_after_forward is not False)
        yield
    elif isinstance(model, DistributedDataParallel) and not sync:
        with model.no_sync():
            yield
    else:
        yield


def reshard(parts: Iterable[nn.Module]) -> None:
    """Frees the gathered parameters that remain after a forward pass without a backward pass."""
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, FSDPModule):
            module.reshard()


def _reshard_after_forward(plan: Plan) -> bool | int:
    """FSDP2's ``reshard_after_forward``; False for zero-bubble schedules, since resharding between the two halves of a split
    backward pass would lose gradients.
    """
    knobs = plan.candidate.knobs
    if knobs.pp_schedule in ZERO_BUBBLE and plan.candidate.layout.pp > 1:
        return False
    value = knobs.reshard_after_forward
    return knobs.reshard_group_size if isinstance(value, str) else value
