"""Optimizers of sharded parameters update shards like plain tensors, without DTensor's dispatch."""

import pytest
import torch
import torch.distributed as dist
from strategist_runtime.optimizers.optimizer import OptimizerConfig, _optimizer
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


class DTensorOperations(TorchDispatchMode):
    """Collects the operations that get DTensors."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found += [str(func)] if DTensor in types else []
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "kernel"), [("adamw", "foreach"), ("adamw", "fused"), ("adamw_bf16", "foreach"), ("sgd", "foreach")]
)
def test_shards_are_updated_like_plain_tensors_without_operations_on_dtensors(name, kernel, mesh):
    torch.manual_seed(0)
    shards = [torch.randn(3, 4), torch.randn(1, 5), torch.empty(0, 2)]
    plain = [nn.Parameter(shard.clone()) for shard in shards]
    sharded = [nn.Parameter(DTensor.from_local(shard.clone(), mesh, [Shard(0)], run_check=False)) for shard in shards]
    config = OptimizerConfig(name=name, kernel=kernel, learning_rate=0.1, weight_decay=0.01)
    one, other = (_optimizer([(str(index), each) for index, each in enumerate(found)], config=config) for found in (plain, sharded))
    for _ in range(3):
        for parameter, twin in zip(plain, sharded, strict=True):
            parameter.grad = torch.randn_like(parameter)
            twin.grad = DTensor.from_local(parameter.grad, mesh, [Shard(0)], run_check=False)
        one.step()
        with DTensorOperations() as operations:
            other.step()
    assert operations.found == []
    for parameter, twin in zip(plain, sharded, strict=True):
        assert torch.equal(parameter, twin.to_local())
        for key, value in one.state[parameter].items():
            state = other.state[twin][key]
            assert isinstance(state, DTensor) == (key != "step")
            assert torch.equal(value, state.to_local() if isinstance(state, DTensor) else state)


@pytest.mark.parametrize("name", ["adamw", "adamw_bf16", "sgd"])
def test_a_gradient_placed_unlike_its_parameter_is_redistributed(name, mesh):
    whole, gradient = torch.randn(4, 3), torch.randn(4, 3)
    plain = nn.Parameter(whole[:2].clone())
    sharded = nn.Parameter(DTensor.from_local(whole[:2].clone(), mesh, [Shard(0)], run_check=False))
    plain.grad, sharded.grad = gradient[:2], DTensor.from_local(gradient, mesh, [Replicate()], run_check=False)
    config = OptimizerConfig(name=name, kernel="foreach", learning_rate=0.1, weight_decay=0.01)
    for parameter in (plain, sharded):
        _optimizer([("weight", parameter)], config=config).step()
    assert torch.equal(plain, sharded.to_local())
