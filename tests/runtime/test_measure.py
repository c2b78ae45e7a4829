"""What a profile says, where the truth is known beforehand."""

import json

import pytest
import torch
from strategist_runtime import measure, memory
from strategist_runtime.optimizer import make_optimizer
from torch import nn

from strategist.units import MIB

from .launch import torchrun

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
CPU = torch.device("cpu")


def test_the_peak_is_what_lived_at_the_fullest_moment():
    def step():
        first = torch.empty(4 * MIB, dtype=torch.uint8)
        second = torch.empty(2 * MIB, dtype=torch.uint8)
        del first
        third = torch.empty(3 * MIB, dtype=torch.uint8)
        del second, third

    assert measure.profiled(step, CPU).allocated_bytes == 6 * MIB


def test_the_peak_of_a_training_step_is_known_by_hand():
    """Fullest at the end of backward: activation and its gradient are gone, the weight's gradient is there."""
    linear, rows = nn.Linear(1024, 1024, bias=False), torch.ones(1, 1024)

    def step():
        linear(rows).sum().backward()
        linear.weight.grad = None

    found = measure.profiled(step, CPU).allocated_bytes
    assert 4 * MIB <= found <= 4 * MIB + 3 * 4096 + 64  # the gradient; beside it at most output, its gradient and the sum


def test_static_bytes_are_parameters_and_optimizer_states():
    model = nn.Linear(256, 256, bias=False)
    optimizer = make_optimizer(model.parameters(), "adamw", "fused", 1e-3)
    assert memory.static_bytes([model], optimizer, []) == 4 * 256 * 256
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    counter = 4  # AdamW's count of steps
    assert memory.static_bytes([model], optimizer, []) == 3 * 4 * 256 * 256 + counter


def test_shared_storage_counts_once():
    model = nn.Linear(256, 256, bias=False)
    other = model.weight.detach()
    assert memory.static_bytes([model], make_optimizer(model.parameters(), "sgd", "foreach", 1e-3), [other]) == 4 * 256 * 256


def test_communication_is_exposed_when_nothing_runs_beside_it(tmp_path):
    target = tmp_path / "overlap.json"
    done = torchrun(2, ["runtime.overlap_rank", str(target)])
    assert done.returncode == 0, done.stderr
    found = json.loads(target.read_text(encoding="utf-8"))
    alone, beside = found["alone"], found["beside"]
    for figures in (alone, beside):
        assert 0 < figures["communication_seconds"] <= figures["step_seconds"]
    assert alone["exposed_communication_seconds"] > 0.9 * alone["communication_seconds"]
    assert beside["exposed_communication_seconds"] < 0.5 * beside["communication_seconds"]
