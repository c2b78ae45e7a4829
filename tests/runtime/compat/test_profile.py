"""The process group in which a torch operator communicates."""

import pytest
import torch
import torch.distributed as dist
from strategist_runtime.compat.profile import PAIRED_COLLECTIVES, group_of_call

pytestmark = pytest.mark.torch


@pytest.fixture
def group():
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    yield dist.new_group([0, 1], group_desc="mesh_cp")
    dist.destroy_process_group()


def test_collective_operators_are_assigned_to_their_process_group(group):
    rows, name = torch.zeros(2, 4), group.group_name
    functional = torch.ops._c10d_functional
    calls = {
        functional.all_reduce.default: (rows, "sum", name),
        functional.all_gather_into_tensor.default: (rows, 2, name),
        **dict.fromkeys(PAIRED_COLLECTIVES, (rows, rows, 0, name)),
    }
    assert {group_of_call(operator, arguments) for operator, arguments in calls.items()} == {"mesh_cp"}


def test_waiting_and_computing_operators_have_no_process_group(group):
    rows = torch.zeros(2, 4)
    assert group_of_call(torch.ops._c10d_functional.wait_tensor.default, (rows,)) is None
    assert group_of_call(torch.ops.aten.add.Tensor, (rows, rows)) is None
