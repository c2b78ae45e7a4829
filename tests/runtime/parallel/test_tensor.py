"""Vocabulary-parallel embedding: the rows of each rank, and their gradients."""

import pytest
import torch
import torch.distributed as dist
from strategist_runtime.parallel.tensor import VocabParallelEmbedding
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

pytestmark = pytest.mark.torch
RANKS, ROWS = 4, 18


@pytest.fixture(params=range(RANKS))
def mesh(request):
    dist.init_process_group("fake", store=dist.HashStore(), rank=request.param, world_size=RANKS)
    yield init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def own_rows(mesh):
    """Row numbers of a rank: of 18 rows the last of four ranks has 3, the others 5."""
    first = 5 * mesh.get_local_rank()
    return range(first, min(first + 5, ROWS))


def test_a_rank_looks_up_its_own_rows_and_returns_zeros_for_others(mesh):
    values = torch.arange(1.0, 2 * ROWS + 1).view(ROWS, 2)
    rows = VocabParallelEmbedding(nn.Embedding(ROWS, 2), mesh, Replicate())
    with torch.no_grad():
        rows.weight.to_local().copy_(values[own_rows(mesh)])
    found = rows(torch.arange(ROWS).view(1, ROWS))  # fake ranks add nothing to the sum
    wanted = torch.zeros(1, ROWS, 2)
    wanted[:, own_rows(mesh)] = values[own_rows(mesh)]
    torch.testing.assert_close(found, wanted)


def test_the_embedding_gradient_has_only_the_ranks_rows(mesh):
    rows = VocabParallelEmbedding(nn.Embedding(ROWS, 2), mesh, Replicate())
    rows(torch.tensor([[0, 5, 5, 17]])).sum().backward()
    gradient = rows.weight.grad
    assert isinstance(gradient, DTensor)
    assert gradient.placements == (Shard(0),)
    local = gradient.to_local()
    counts = {0: 1.0, 5: 2.0, 17: 1.0}
    assert local[:, 0].tolist() == [counts.get(row, 0.0) for row in own_rows(mesh)]
    assert local.untyped_storage().nbytes() == local.nbytes


def test_a_frozen_embedding_stays_frozen(mesh):
    whole = nn.Embedding(ROWS, 2).requires_grad_(False)
    assert not VocabParallelEmbedding(whole, mesh, Shard(1)).weight.requires_grad
