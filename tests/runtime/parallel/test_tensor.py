"""Tensor parallelism: what a rank has of an embedding, and of its gradient."""

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


def own(mesh):
    """Numbers of a rank's rows: of 18 the last of four ranks has 3, the others 5."""
    first = 5 * mesh.get_local_rank()
    return range(first, min(first + 5, ROWS))


def test_a_rank_looks_up_the_tokens_that_it_has_and_leaves_the_others_to_their_ranks(mesh):
    values = torch.arange(1.0, 2 * ROWS + 1).view(ROWS, 2)
    rows = VocabParallelEmbedding(nn.Embedding(ROWS, 2), mesh, Replicate())
    with torch.no_grad():
        rows.weight.to_local().copy_(values[own(mesh)])
    found = rows(torch.arange(ROWS).view(1, ROWS))  # nobody adds to a sum of fake ranks
    wanted = torch.zeros(1, ROWS, 2)
    wanted[:, own(mesh)] = values[own(mesh)]
    torch.testing.assert_close(found, wanted)


def test_the_gradient_has_the_rows_of_the_rank_and_no_others(mesh):
    rows = VocabParallelEmbedding(nn.Embedding(ROWS, 2), mesh, Replicate())
    rows(torch.tensor([[0, 5, 5, 17]])).sum().backward()
    gradient = rows.weight.grad
    assert isinstance(gradient, DTensor)
    assert gradient.placements == (Shard(0),)
    local = gradient.to_local()
    counts = {0: 1.0, 5: 2.0, 17: 1.0}
    assert local[:, 0].tolist() == [counts.get(row, 0.0) for row in own(mesh)]
    assert local.untyped_storage().nbytes() == local.nbytes


def test_what_is_frozen_stays_frozen(mesh):
    whole = nn.Embedding(ROWS, 2).requires_grad_(False)
    assert not VocabParallelEmbedding(whole, mesh, Shard(1)).weight.requires_grad
