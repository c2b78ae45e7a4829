"""Differences of torch 2.11 from later versions, tested with any installed version."""

import importlib.util
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from strategist_runtime.compat import pipeline, recompute, simulate
from torch.distributed.pipelining import stage
from torch.utils.checkpoint import _VersionWrapper

pytestmark = pytest.mark.torch


def test_simulation_works_without_pipeline_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older pipelining has no InferenceMode."""
    monkeypatch.delattr(stage, "InferenceMode", raising=False)
    spec = importlib.util.spec_from_file_location("simulate_again", simulate.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.InferenceMode is None


def test_receive_buffers_are_allocated_except_on_the_first_stage() -> None:
    root, received = SimpleNamespace(), SimpleNamespace(buffer=torch.empty(3, device="meta", requires_grad=True))
    pipeline.allocate((root, received), torch.device("cpu"))
    assert received.buffer.device.type == "cpu"
    assert received.buffer.requires_grad, "the backward pass of a stage ends at its received tensors"
    pipeline.free((root, received))
    assert received.buffer.is_meta
    assert received.buffer.requires_grad
    assert not hasattr(root, "buffer")


@pytest.mark.parametrize("kind", [list, dict])
def test_selective_recomputation_packs_saved_outputs(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch stores outputs of an operation in a list in call order, later versions in a dictionary by number."""
    made = recompute.create_selective_checkpoint_contexts

    def contexts(policy: recompute.Policy) -> object:
        saving, repeating = made(policy)
        saving.storage = repeating.storage = defaultdict(kind)
        return saving, repeating

    monkeypatch.setattr(recompute, "create_selective_checkpoint_contexts", contexts)
    packing = recompute.Packing(pack=lambda tensor: tensor.tolist(), unpack=torch.tensor)
    saving, repeating = recompute.selective_contexts(lambda *_: recompute.CheckpointPolicy.MUST_SAVE, packing)
    saved = (_VersionWrapper(torch.ones(2)), None)
    if kind is list:
        saving.storage["mm"].append(saved)
        entry, nothing = repeating.storage["mm"].pop(0)
    else:
        saving.storage["mm"][0] = saved
        entry, nothing = repeating.storage["mm"][0]
    assert nothing is None
    assert entry.packed == [1.0, 1.0]
    assert torch.equal(entry.get_val(False), torch.ones(2))
