"""Seeded weights: generated on their own device, row by row."""

from collections.abc import Iterator

import pytest
import torch
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.weights import seeded

from ..plans import TINY

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("limit", "kinds"), [(0, {"meta"}), (2**20, {"cpu"})])
@pytest.mark.parametrize("target", ["meta", "cpu"])
def test_large_matrices_are_generated_on_the_device(
    limit: int, kinds: set[str], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One host thread would take minutes for a large model; a small one is equal on host and device. A model in host memory is
    generated like on the device that computes.
    """
    monkeypatch.setattr(seeded, "HOST_ELEMENTS", limit)
    used_devices: set[str] = set()

    def drawn(
        name: str, columns: int, deviation: float, rows: range, on: torch.device = seeded.HOST
    ) -> Iterator[tuple[int, torch.Tensor]]:
        used_devices.add(on.type)
        yield from ()

    monkeypatch.setattr(seeded, "random_rows", drawn)
    with torch.device("meta"):
        model = Decoder(TINY)
    seeded.materialise(model, TINY, 8, 0, torch.device(target), compute_device=torch.device("meta"))
    assert used_devices == kinds


def test_a_row_does_not_depend_on_the_generated_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded, "BLOCK_ELEMENTS", 64)
    whole = torch.cat([values for _, values in seeded.random_rows("matrix", 16, 0.02, range(20))])[:20]
    part = dict(seeded.random_rows("matrix", 16, 0.02, range(7, 13)))
    assert sorted(part) == [4, 8, 12]
    for start, values in part.items():
        assert torch.equal(values[: len(whole) - start], whole[start : start + len(values)])


@pytest.mark.parametrize("columns", [1, 3, 16, 36])
def test_the_first_rows_of_a_block_have_the_values_of_the_whole_block(columns: int) -> None:
    rows = seeded.BLOCK_ELEMENTS // columns
    ((_, block),) = seeded.random_rows("matrix", columns, 0.02, range(rows))
    for count in (1, 15, 17, 4000, rows - 17, rows - 16, rows - 1):
        ((_, part),) = seeded.random_rows("matrix", columns, 0.02, range(count))
        assert count <= len(part) <= rows
        assert torch.equal(part, block[: len(part)]), count


def test_a_small_matrix_costs_no_whole_block() -> None:
    ((_, drawn),) = seeded.random_rows("matrix", 32, 0.02, range(20))
    assert len(drawn) == 32
