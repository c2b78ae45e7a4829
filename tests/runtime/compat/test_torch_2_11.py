"""What torch 2.11 does otherwise than later versions, shown by whichever is installed."""

import importlib.util
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from strategist_runtime.compat import pipeline, recompute, simulate
from torch.distributed.pipelining import stage
from torch.utils.checkpoint import _VersionWrapper

pytestmark = pytest.mark.torch


def test_a_simulation_needs_no_mode_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older pipelines have none to be told."""
    monkeypatch.delattr(stage, "InferenceMode", raising=False)
    spec = importlib.util.spec_from_file_location("simulate_again", simulate.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.InferenceMode is None


def test_what_a_first_stage_is_given_has_no_buffer() -> None:
    root, received = SimpleNamespace(), SimpleNamespace(buffer=torch.empty(3, device="meta", requires_grad=True))
    pipeline.allocate((root, received), torch.device("cpu"))
    assert received.buffer.device.type == "cpu"
    assert received.buffer.requires_grad, "what a stage receives is where its backward pass ends"
    pipeline.free((root, received))
    assert received.buffer.is_meta
    assert received.buffer.requires_grad
    assert not hasattr(root, "buffer")


@pytest.mark.parametrize("kind", [list, dict])
def test_what_selective_recomputation_keeps_waits_packed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of an operation lie in a list by the order of calls, later in a dictionary by their number."""
    made = recompute.create_selective_checkpoint_contexts

    def contexts(policy: recompute.Policy) -> object:
        keeping, repeating = made(policy)
        keeping.storage = repeating.storage = defaultdict(kind)
        return keeping, repeating

    monkeypatch.setattr(recompute, "create_selective_checkpoint_contexts", contexts)
    packing = recompute.Packing(pack=lambda tensor: tensor.tolist(), unpack=torch.tensor)
    keeping, repeating = recompute.selective_contexts(lambda *_: recompute.CheckpointPolicy.MUST_SAVE, packing)
    saved = (_VersionWrapper(torch.ones(2)), None)
    if kind is list:
        keeping.storage["mm"].append(saved)
        entry, nothing = repeating.storage["mm"].pop(0)
    else:
        keeping.storage["mm"][0] = saved
        entry, nothing = repeating.storage["mm"][0]
    assert nothing is None
    assert entry.packed == [1.0, 1.0]
    assert torch.equal(entry.get_val(False), torch.ones(2))
