"""The device mesh of a layout, and what a rank needs to know of its place in it."""

from dataclasses import dataclass

import torch
from torch.distributed.device_mesh import DeviceMesh

from strategist.contract.layout import AXES, Layout

CANONICAL = ("dp_replicate", "dp_shard", "tp")


@dataclass(frozen=True, kw_only=True)
class Meshes:
    """Sub-meshes by use; None where the layout has no such axis. ``data`` is the one that FSDP2 gets: 1-D, or 2-D for HSDP."""

    data: DeviceMesh | None
    tensor: DeviceMesh | None
    data_rank: int
    data_ranks: int


def uses_fsdp(layout: Layout) -> bool:
    """Whether FSDP2 holds the parameters.

    Tensor parallelism alone takes it too, with one shard: it brings the gradients of replicated parameters together over tp and
    keeps the parameters that matmuls see in bf16, which DDP does for no DTensor.
    """
    return layout.dp_shard > 1 or layout.tp > 1


def axis_of(group: str, layout: Layout) -> str:
    """The axis that a process group lies along, from torch's description of it (``mesh_tp``); ``world`` for one of all ranks.

    A group over several axes is the first's, as with parameters sharded over ``mesh_dp_shard_cp``. FSDP2 gives no names to the
    groups in which it reshards (``mesh_dim_0``). Where the mesh has one axis only, all ranks are that axis.
    """
    name = group.removeprefix("mesh_")
    named = (axis for axis in (*AXES, "ep") if name == axis or name.startswith(f"{axis}_"))
    only = tuple(layout.mesh) if len(layout.mesh) == 1 else ("world",)
    return next(named, "dp_shard" if name.startswith("dim_") else only[0])


def rank_grid(layout: Layout) -> torch.Tensor:
    """Global ranks, [dp_replicate, dp_shard, tp], laid out so that the last axis of ``axis_order`` varies fastest."""
    order = [axis for axis in layout.axis_order if axis in CANONICAL]
    grid = torch.arange(layout.world_size).view([getattr(layout, axis) for axis in order])
    return grid.permute([order.index(axis) for axis in CANONICAL]).contiguous()


def make_meshes(layout: Layout, device_kind: str, rank: int) -> Meshes:
    """Makes the process groups; every rank must call it at the same time.

    The mesh keeps torch's order (replicate, shard, tp) whatever ``axis_order`` is: the order decides which ranks lie where.
    """
    grid = rank_grid(layout)
    replicate, shard, _ = (grid == rank).nonzero()[0].tolist()
    place = {"data_rank": replicate * layout.dp_shard + shard, "data_ranks": layout.data_ranks}
    needed = {
        "dp_replicate": layout.dp_replicate > 1,
        "dp_shard": uses_fsdp(layout),
        "tp": layout.tp > 1,
    }
    names = tuple(axis for axis in CANONICAL if needed[axis])
    if not uses_fsdp(layout):
        return Meshes(data=None, tensor=None, **place)
    mesh = DeviceMesh(device_kind, grid.reshape([getattr(layout, axis) for axis in names]), mesh_dim_names=names)
    data = names[:-1] if "tp" in names else names
    return Meshes(
        data=mesh[data] if data != names else mesh,
        tensor=mesh["tp"] if "tp" in names else None,
        **place,
    )
