"""Seeded weights: drawn where they will lie, rows of a matrix one by one."""

from collections.abc import Iterator

import pytest
import torch
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.weights import seeded

from ..plans import TINY

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("limit", "kinds"), [(0, {"meta"}), (2**20, {"cpu"})])
@pytest.mark.parametrize("lies_on", ["meta", "cpu"])
def test_large_matrices_are_drawn_on_the_device(limit: int, kinds: set[str], lies_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread of the host would take minutes for a large model; a small one begins alike on the host and on a device. A model in
    host memory begins as one on the device that computes does."""
    monkeypatch.setattr(seeded, "HOST_ELEMENTS", limit)
    asked: set[str] = set()

    def drawn(
        name: str, columns: int, deviation: float, rows: range, on: torch.device = seeded.HOST
    ) -> Iterator[tuple[int, torch.Tensor]]:
        asked.add(on.type)
        yield from ()

    monkeypatch.setattr(seeded, "random_rows", drawn)
    with torch.device("meta"):
        model = Decoder(TINY)
    seeded.materialise(model, TINY, 8, 0, torch.device(lies_on), computes_on=torch.device("meta"))
    assert asked == kinds


def test_a_row_is_the_same_whoever_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded, "BLOCK_ELEMENTS", 64)
    whole = torch.cat([values for _, values in seeded.random_rows("matrix", 16, 0.02, range(20))])[:20]
    part = dict(seeded.random_rows("matrix", 16, 0.02, range(7, 13)))
    assert sorted(part) == [4, 8, 12]
    for start, values in part.items():
        assert torch.equal(values[: len(whole) - start], whole[start : start + len(values)])
