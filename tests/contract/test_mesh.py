"""Mesh axes and the nodes that they span."""

from strategist.contract.layout import Layout
from strategist.contract.mesh import mesh_axes
from strategist.profiles.cluster import resolve_cluster

ON = resolve_cluster("4x8xH100")


def test_the_last_axis_has_stride_one_and_stays_inside_a_node() -> None:
    replicas, shards, tensor = mesh_axes(Layout(dp_replicate=2, dp_shard=8, tp=2), ON)
    assert [(axis.name, axis.stride) for axis in (replicas, shards, tensor)] == [("dp_replicate", 16), ("dp_shard", 2), ("tp", 1)]
    assert [axis.across_nodes for axis in (replicas, shards, tensor)] == [True, True, False]
    assert (tensor.link, shards.link) == (ON.intra.name, ON.inter.name)
    assert shards.first == (0, 2, 4, 6, 8, 10, 12, 14)


def test_axis_order_decides_which_axis_crosses_nodes() -> None:
    order = ("dp_replicate", "pp", "dp_shard", "cp", "tp")
    replicas, stages = mesh_axes(Layout(pp=4, dp_replicate=8, axis_order=order), ON)
    assert (replicas.name, replicas.across_nodes, stages.across_nodes) == ("dp_replicate", True, False)


def test_expert_axes_have_the_innermost_strides() -> None:
    *_, experts, pieces = mesh_axes(Layout(dp_shard=16, tp=2, ep=4, etp=2), ON)
    assert (experts.name, experts.degree, experts.stride) == ("ep", 4, 2)
    assert (pieces.name, pieces.stride) == ("etp", 1)


def test_a_single_device_has_no_mesh_axes() -> None:
    assert list(mesh_axes(Layout(), ON)) == []
