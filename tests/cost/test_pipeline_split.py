"""Pipeline splits are optimal for any weight of embedding and head and any speed of the ranks."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from strategist.contract.pipeline_stages import even_layers
from strategist.cost.pipeline_actions import Pipeline
from strategist.cost.pipeline_split import split


def cuts(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every assignment of layers to stages, at least one layer each."""
    if stages == 1:
        yield (layers,)
        return
    for first in range(1, layers - stages + 2):
        for rest in cuts(layers - first, stages - 1):
            yield (first, *rest)


def slowest(pipeline: Pipeline, layers: tuple[int, ...], ends: list[float], speeds: list[float]) -> float:
    ranks = [0.0] * pipeline.pp
    for stage, (count, end) in enumerate(zip(layers, ends, strict=True)):
        ranks[pipeline.rank_of(stage)] += count + end
    return max(seconds / speed for seconds, speed in zip(ranks, speeds, strict=True))


@settings(max_examples=120)
@given(
    pipeline=st.sampled_from([Pipeline("1f1b", 3, 1, 4), Pipeline("interleaved_1f1b", 2, 2, 4), Pipeline("dual_pipe_v", 2, 2, 4)]),
    more=st.integers(0, 6),
    ends=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    speeds=st.lists(st.integers(1, 4), min_size=3, max_size=3),
)
def test_the_split_is_optimal(pipeline: Pipeline, more: int, ends: list[int], speeds: list[int]) -> None:
    layers, weights = pipeline.stages + more, [end / 4 for end in ends[: pipeline.stages]]
    fast = [speed / 2 for speed in speeds[: pipeline.pp]]
    found = split(pipeline, layers, 1.0, weights, fast)
    assert sum(found.layers) == layers
    assert min(found.layers) >= 1
    assert found.slowest_seconds == pytest.approx(slowest(pipeline, found.layers, weights, fast))
    assert found.slowest_seconds == pytest.approx(
        min(slowest(pipeline, cut, weights, fast) for cut in cuts(layers, pipeline.stages))
    )
    assert found.even_seconds == pytest.approx(slowest(pipeline, even_layers(layers, pipeline.stages), weights, fast))
    assert found.gain >= 0


def test_without_embedding_and_head_stages_are_even() -> None:
    assert split(Pipeline("1f1b", 4, 1, 8), 10, 0.5, [0.0] * 4).layers == (3, 3, 2, 2)
    assert split(Pipeline("1f1b", 4, 1, 8), 10, 0.5, [0.0] * 4).gain == 0


def test_a_large_head_gives_its_stage_fewer_layers() -> None:
    found = split(Pipeline("1f1b", 4, 1, 8), 32, 1.0, [0, 0, 0, 4.0])
    assert found.layers == (9, 9, 9, 5)
    assert found.gain == pytest.approx(12 / 9 - 1)


def test_in_v_shaped_schedules_the_head_is_on_the_first_rank() -> None:
    found = split(Pipeline("zbv_zero_bubble", 2, 2, 4), 16, 1.0, [0, 0, 0, 4.0])
    assert found.layers == (5, 5, 5, 1)


def test_a_slow_rank_gets_fewer_layers() -> None:
    found = split(Pipeline("1f1b", 4, 1, 8), 32, 1.0, [0.0] * 4, [1.0, 1.0, 1.0, 0.5])
    assert found.layers == (10, 9, 9, 4)
    assert found.gain == pytest.approx(16 / 10 - 1)
