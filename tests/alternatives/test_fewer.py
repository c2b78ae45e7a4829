"""Plans on fewer devices than the request has."""

from dataclasses import replace

import pytest

from strategist.alternatives.fewer_devices import unused_devices_note, with_fewer_devices
from strategist.contract.request import Request
from strategist.profiles.situation import Situation, situation


def requested(gpus: str, objective: str) -> Situation:
    return situation(Request(model="8b", gpus=gpus, objective=objective))


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        ("4x8xH100", [(2, 8), (1, 8), (1, 4), (1, 2), (1, 1)]),
        ("3x2xH100", [(1, 2), (1, 1)]),
        ("1xH100", []),
    ],
)
def test_nodes_are_halved_before_devices_per_node(gpus: str, sizes: list[tuple[int, int]]) -> None:
    found = list(with_fewer_devices(requested(gpus, "cost")))
    assert [(item.cluster.nodes, item.cluster.gpus_per_node) for item in found] == sizes
    assert len({item.digest for item in found} | {requested(gpus, "cost").digest}) == len(sizes) + 1


@pytest.mark.parametrize("objective", ["throughput", "memory"])
def test_objectives_without_cost_use_all_devices(objective: str) -> None:
    whole = requested("4x8xH100", objective)
    assert list(with_fewer_devices(whole)) == []
    assert unused_devices_note(whole, whole, 1.0, 1.0, 0.04) == ""


def test_the_note_on_unused_devices_states_saving_and_slowdown() -> None:
    whole = requested("4x8xH100", "energy")
    half = next(with_fewer_devices(whole))
    assert unused_devices_note(whole, half, 1.25, 1.5, 0.04) == (
        " 16 of 32 devices are used: a token needs 20% less energy there than on all, which would be 1.5 times as fast."
    )
    assert "costs 20% less there" in unused_devices_note(requested("4x8xH100", "cost"), half, 1.25, 1.5, 0.04)
    assert "No part" in unused_devices_note(whole, replace(whole), 1.0, 1.0, 0.04)
