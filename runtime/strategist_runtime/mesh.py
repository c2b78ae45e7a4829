"""The device meshes of a layout, and a rank's position in them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from strategist.contract.layout import AXES, Layout
from strategist_runtime.compat.groups import COLLECTIVE_BACKENDS, unflatten_mesh

SHARD, EXPERT_SHARD, EXPERT, EXPERT_TENSOR = "dp_shard_cp", "dp_shard_expert", "ep", "tp_expert"
"""Names of mesh axes besides those of the layout. The prefix is the axis to which the traffic counts: dp_shard, dp_shard, ep and
tp.
"""


@dataclass(frozen=True, kw_only=True)
class Meshes:
    """Sub-meshes by use; None where the layout has no such axis.

    ``data`` is the one that FSDP2 gets, 1-D, or 2-D for HSDP; ``expert_data`` the one that it gets for experts where that is
    another, ``experts`` the one that they are dealt out on, 1-D, or 2-D (ep, etp). ``data_rank`` of ``data_ranks`` read different
    sequences; ``stage_rank`` is the place in the pipeline.
    """

    pipeline: DeviceMesh | None = None
    data: DeviceMesh | None = None
    context: DeviceMesh | None = None
    tensor: DeviceMesh | None = None
    experts: DeviceMesh | None = None
    expert_data: DeviceMesh | None = None
    data_rank: int = 0
    data_ranks: int = 1
    stage_rank: int = 0


def uses_fsdp(layout: Layout, offload: str = "none") -> bool:
    """Whether FSDP2 manages the parameters, as always with ``offload: all``.

    Tensor parallelism without sharding uses it as well, with one shard: FSDP2 reduces the gradients of replicated parameters
    over tp, and casts the parameters of matmuls to bf16; DDP does neither for DTensors. So do pipeline stages with replicas,
    since the pipeline tells FSDP2 which micro-batch is the last.
    """
    return layout.fsdp_ranks > 1 or layout.tp > 1 or (layout.pp > 1 and layout.dp_replicate > 1) or offload == "all"


def axis_of(group: str, layout: Layout) -> str:
    """The mesh axis of a process group, from torch's description of it (``mesh_tp``); ``world`` for a group of all ranks.

    A group over several axes counts as the first one, such as ``mesh_dp_shard_cp`` for parameters. The groups in which FSDP2
    reshards have no names (``mesh_dim_0``) and count as dp_shard. If the mesh has only one axis, a group of all ranks is that
    axis.
    """
    name = group.removeprefix("mesh_")
    axes = (axis for axis in (*AXES, EXPERT) if name == axis or name.startswith(f"{axis}_"))
    fallback = tuple(layout.mesh) if len(layout.mesh) == 1 else ("world",)
    return next(axes, "dp_shard" if name.startswith("dim_") else fallback[0])


def rank_grid(layout: Layout) -> torch.Tensor:
    """Global ranks, [pp, dp_replicate, dp_shard, cp, tp]; the last axis of ``axis_order`` varies fastest."""
    order = layout.axis_order
    grid = torch.arange(layout.world_size).view([getattr(layout, axis) for axis in order])
    return grid.permute([order.index(axis) for axis in AXES]).contiguous()


def make_meshes(layout: Layout, device_kind: str, rank: int, *, experts: bool = False, offload: str = "none") -> Meshes:
    """Makes the process groups, including those of ``experts`` if the model has any; every rank must call it at the same time.

    All meshes are unflattened from one mesh of all ranks, so that torch can relate FSDP2's mesh to tensor parallelism's. Each
    keeps torch's order of axes (replicate, shard, tp); ``axis_order`` decides only which rank is at which position.
    """
    grid = rank_grid(layout)
    stage, replicate, shard, *_ = (grid == rank).nonzero()[0].tolist()
    position = {
        "data_rank": replicate * layout.dp_shard + shard,
        "data_ranks": layout.data_ranks,
        "stage_rank": stage,
    }
    if not uses_fsdp(layout, offload) and layout.pp == 1:
        return Meshes(**position)
    world = DeviceMesh(device_kind, grid.flatten(), mesh_dim_names=("world",))
    dense = _unflatten(
        world,
        {"pp": layout.pp, "dp_replicate": layout.dp_replicate, SHARD: layout.fsdp_ranks, "tp": layout.tp},
        kept_dimensions=(SHARD,) if uses_fsdp(layout, offload) else (),
    )
    found: dict[str, Any] = {
        "pipeline": _slice(dense, "pp"),
        "data": _slice(dense, "dp_replicate", SHARD),
        "tensor": _slice(dense, "tp"),
    }
    if layout.cp > 1:
        outer = layout.pp * layout.data_ranks
        found["context"] = _unflatten(world, {"outside": outer, "cp": layout.cp, "inside": layout.tp})["cp"]
    if experts and layout.ep * layout.tp > 1:
        found |= _expert_meshes(world, layout)
    return Meshes(**found, **position)


def _expert_meshes(world: DeviceMesh, layout: Layout) -> dict[str, DeviceMesh | None]:
    """The meshes of experts: the ranks of dp_shard x cp x tp that ``ep`` and ``etp`` do not use shard each expert's parameters;
    with ep and etp 1 these are all of them, tp included.
    """
    shards = layout.fsdp_ranks * layout.tp // (layout.ep * layout.etp)
    sizes = {
        "pp": layout.pp,
        "dp_replicate": layout.dp_replicate,
        EXPERT_SHARD: shards,
        EXPERT: layout.ep,
        EXPERT_TENSOR: layout.etp,
    }
    # For an axis of all ranks torch would use the group of all ranks: all-to-alls would wait for all-gathers, and count as theirs.
    separate_backends = {EXPERT: COLLECTIVE_BACKENDS[world.device_type]} if layout.ep > 1 else None
    sparse = _unflatten(world, sizes, kept_dimensions=(EXPERT_SHARD,), separate_backends=separate_backends)
    return {
        "experts": _slice(sparse, EXPERT, EXPERT_TENSOR),
        "expert_data": _slice(sparse, "dp_replicate", EXPERT_SHARD),
    }


def _unflatten(
    world: DeviceMesh, sizes: dict[str, int], kept_dimensions: tuple[str, ...] = (), separate_backends: dict[str, Any] | None = None
) -> DeviceMesh:
    """The mesh of all ranks with these dimensions, without those of size 1 that are not in ``kept_dimensions``. Dimensions in
    ``separate_backends`` get separate process groups of any size, with these back ends.
    """
    dimensions = {name: size for name, size in sizes.items() if size > 1 or name in kept_dimensions}
    return unflatten_mesh(world, dimensions, separate_backends)


def _slice(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """The sub-mesh of the named dimensions that the mesh has; None if it has none of them."""
    present = tuple(name for name in names if name in (mesh.mesh_dim_names or ()))
    return mesh[present] if present else None
