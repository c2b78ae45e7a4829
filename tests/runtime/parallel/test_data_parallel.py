"""FSDP2: sharded dimensions, units, prefetching, and recomputed layers."""

import pytest
import torch
import torch.distributed as dist
from strategist_runtime.activation_checkpointing import apply_activation_checkpointing
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.parallel.data_parallel import shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.device_mesh import init_device_mesh

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options

from ..cases import MODELS
from ..plans import plan

pytestmark = pytest.mark.torch


@pytest.fixture
def mesh():
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,), mesh_dim_names=("dp_shard",))
    dist.destroy_process_group()


def meta_decoder(name):
    with torch.device("meta"):
        return Decoder(MODELS[name])


def sharded(name, mesh, **options):
    model = meta_decoder(name)
    shard(model, plan(layout=Layout(dp_shard=4), model=MODELS[name], options=Options(**options)), mesh)
    return model


def dimensions(model):
    return {name: parameter.placements[0].dim for name, parameter in model.named_parameters()}


def test_parameters_are_sharded_in_their_first_dimension(mesh):
    assert set(dimensions(sharded("odd", mesh)).values()) == {0}


def test_largest_placement_shards_the_largest_divisible_dimension(mesh):
    found = dimensions(sharded("odd", mesh, shard_placement="largest"))  # vocabulary 63, hidden 36, feed-forward 50
    assert found["embedding.weight"] == 1
    assert found["layers.0.feed_forward.gate.weight"] == 1
    assert found["layers.0.feed_forward.down.weight"] == 0
    assert found["layers.0.attention.query.weight"] == 1
    assert found["norm.weight"] == 0


def test_layers_of_a_unit_are_gathered_together(mesh):
    layers = sharded("deepest", mesh, layers_per_unit=4).layers.values()
    states = [layer._get_fsdp_state() for layer in layers]
    assert [states.index(state) for state in states] == [0, 0, 0, 0, 4, 4, 4, 4, 8]


def test_prefetch_units_are_gathered_ahead_in_both_passes(mesh):
    states = [layer._get_fsdp_state() for layer in sharded("deepest", mesh, prefetch_units=3).layers.values()]
    assert states[1]._states_to_forward_prefetch == states[2:5]
    assert states[7]._states_to_forward_prefetch == states[8:]
    assert states[7]._states_to_backward_prefetch == [states[6], states[5], states[4]]
    assert states[1]._states_to_backward_prefetch == [states[0]]


def test_without_prefetch_units_fsdps_own_prefetching_is_kept(mesh):
    assert all(layer._get_fsdp_state()._states_to_forward_prefetch == [] for layer in sharded("deepest", mesh).layers.values())


@pytest.mark.parametrize(
    ("recompute", "wrapped"),
    [
        ("none", []),
        ("budget", []),
        ("every_second_layer", [0, 2, 4, 6, 8]),
        ("full", list(range(9))),
        ("selective", list(range(9))),
    ],
)
def test_recompute_modes_wrap_their_layers(recompute, wrapped):
    model = meta_decoder("deepest")
    apply_activation_checkpointing(model, Knobs(recompute=recompute))
    assert [index for index, layer in enumerate(model.layers.values()) if isinstance(layer, CheckpointWrapper)] == wrapped
