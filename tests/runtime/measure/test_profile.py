"""Profiled steps with known results."""

import json
import threading

import pytest
import torch
from strategist_runtime.measure import memory, profile
from strategist_runtime.measure.spans import DATA, PASSES, UPDATE, span
from torch import nn
from torch.utils.checkpoint import checkpoint

from strategist.units import MIB

from ..launch import forked

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
CPU = torch.device("cpu")


def test_the_peak_is_the_largest_sum_of_live_tensors():
    def step():
        first = torch.empty(4 * MIB, dtype=torch.uint8)
        second = torch.empty(2 * MIB, dtype=torch.uint8)
        del first
        third = torch.empty(3 * MIB, dtype=torch.uint8)
        del second, third

    assert profile.profiled(step, CPU).allocated_bytes == 6 * MIB
    assert memory.peak([]) == (0, 0)


def test_tensors_freed_by_another_thread_do_not_stay_in_the_count():
    """Like gloo's threads, whose frees the profiler does not record."""

    def step():
        tensors = [torch.empty(1000)]
        thread = threading.Thread(target=tensors.clear)
        thread.start()
        thread.join()
        kept = torch.empty(600)
        del kept

    assert profile.profiled(step, torch.device("cpu")).allocated_bytes == 4000


def test_the_peak_of_a_training_step_equals_a_hand_count():
    """The peak is at the end of the backward pass: activation and its gradient are freed, the weight's gradient exists."""
    linear, rows = nn.Linear(1024, 1024, bias=False), torch.ones(1, 1024)

    def step():
        linear(rows).sum().backward()
        linear.weight.grad = None

    found = profile.profiled(step, CPU).allocated_bytes
    assert 4 * MIB <= found <= 4 * MIB + 3 * 4096 + 64  # the gradient, and at most output, its gradient and the sum


def test_the_peak_names_its_pass_and_module():
    """The gradients of a wide head coexist with its output's gradient; without a backward pass its output is allocated last."""
    layers = nn.ModuleDict({"0": nn.Linear(64, 64), "1": nn.Linear(64, 64)})
    wide = nn.Module()
    wide.layers, wide.head = layers, nn.Linear(64, 4096)
    rows = torch.ones(256, 64)

    def forward() -> torch.Tensor:
        return wide.head(wide.layers["1"](wide.layers["0"](rows)))

    with memory.marked(memory.modules([wide])):
        backward = profile.profiled(lambda: forward().square().sum().backward(), CPU).peak_moment
        inference = profile.profiled(forward, CPU).peak_moment
    assert (backward.phase, backward.module) in {("backward", "loss"), ("backward", "head")}
    assert (inference.phase, inference.module) == ("forward", "head")
    assert profile.profiled(forward, CPU).peak_moment.module == ""  # the hooks are removed


def test_the_parts_of_a_profiled_step_sum_to_the_step():
    square, rows = nn.Linear(512, 512), torch.ones(512, 512)
    optimizer = torch.optim.AdamW(square.parameters(), fused=True)

    def step() -> None:
        with span(DATA):
            torch.ones(2000, 2000).cumsum(0)
        with span(PASSES):
            again = checkpoint(lambda value: square(square(value)), rows, use_reentrant=False)
            again.exp().sum().backward()
        with span(UPDATE):
            optimizer.step()

    step()
    found = profile.profiled(step, CPU)
    assert sum(found.time.values()) == pytest.approx(found.profiled_step_seconds, rel=0.05, abs=0.02)
    for part in ("matmul", "recompute", "memory_bound", "optimizer", "data"):
        assert found.time[part] > 0
    assert found.time["matmul"] > found.time["recompute"]  # two recomputed matmuls of eight
    assert found.time["other"] < 0.1 * found.profiled_step_seconds


def test_static_bytes_are_parameters_and_optimizer_states():
    model = nn.Linear(256, 256, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    assert memory.static_bytes([model], optimizer, []) == 4 * 256 * 256
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    counter = 4  # AdamW's count of steps
    assert memory.static_bytes([model], optimizer, []) == 3 * 4 * 256 * 256 + counter


def test_shared_storage_counts_once():
    model = nn.Linear(256, 256, bias=False)
    other = model.weight.detach()
    assert memory.static_bytes([model], torch.optim.SGD(model.parameters()), [other]) == 4 * 256 * 256


def test_communication_without_concurrent_compute_is_exposed(tmp_path):
    target = tmp_path / "overlap.json"
    done = forked(2, ["runtime.overlap_rank", str(target)])
    assert done.returncode == 0, done.stderr
    found = json.loads(target.read_text(encoding="utf-8"))
    alone, overlapped = found["alone"], found["overlapped"]
    for figures in (alone, overlapped):
        assert 0 < figures["communication_seconds"] <= figures["profiled_step_seconds"]
    assert alone["exposed_communication_seconds"] > 0.9 * alone["communication_seconds"]
    assert overlapped["exposed_communication_seconds"] < 0.5 * overlapped["communication_seconds"]
