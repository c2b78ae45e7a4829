"""Selective recomputation: operations that the backward pass repeats, and bytes saved between the passes."""

from collections import Counter
from typing import Any

import pytest
import torch
from strategist_runtime.compat import recompute as compat_recompute
from strategist_runtime.mesh import Meshes
from strategist_runtime.training.trainer import make_trainer
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings

from .plans import TINY, plan

pytestmark = pytest.mark.torch
KINDS = {
    "matmul": compat_recompute.MATMULS,
    "attention": compat_recompute.ATTENTION,
    "gate": frozenset({torch.ops.aten.silu.default}),
}


class OperationCounter(TorchDispatchMode):
    """Counts operations by kind, and tracks which of their outputs are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.storages: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen.update(kind for kind, operations in KINDS.items() if func in operations)
        for tensor in (leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)):
            storage = tensor.untyped_storage()
            self.storages[StorageWeakRef(storage)] = storage.nbytes()
        return out

    def living_bytes(self) -> int:
        return sum(size for storage, size in self.storages.items() if not storage.expired())


def passes(recompute: str, saved: str = "matmul+attention") -> tuple[int, Counter[str]]:
    """Bytes saved between the two passes of a micro-batch, and the operations of the backward pass."""
    chosen = plan(knobs=Knobs(recompute=recompute, saved_operations=saved, micro_batch=8))
    one = make_trainer(chosen, TrialSettings(), Meshes(), torch.device("cpu"))
    (model,), rows = one.parts, one.batch(0)
    with OperationCounter() as forward:
        total = model(rows.tokens).sum()
    kept = forward.living_bytes()
    with OperationCounter() as backward:
        total.backward()
    return kept, backward.seen


@pytest.fixture(scope="module")
def plain():
    return passes("none")


@pytest.mark.parametrize(
    ("recompute", "saved", "matmuls", "attention"),
    [
        ("selective", "matmul+attention", 0, 0),
        ("selective", "every_second_matmul+attention", 3, 0),  # the second, fourth and sixth of seven matmuls
        ("selective", "attention", 6, 0),  # no operation needs the output of the last matmul
        ("full", "matmul+attention", 6, 1),
    ],
)
def test_unsaved_operations_are_repeated_in_the_backward_pass(plain, recompute, saved, matmuls, attention):
    found = passes(recompute, saved)[1] - plain[1]
    assert [found[kind] for kind in ("matmul", "attention", "gate")] == [TINY.layers * times for times in (matmuls, attention, 1)]


def test_saving_fewer_operations_reduces_saved_bytes(plain):
    ways = ["matmul+attention", "every_second_matmul+attention", "attention"]
    kept = [plain[0], *(passes("selective", saved)[0] for saved in ways), passes("full")[0]]
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == len(kept)
