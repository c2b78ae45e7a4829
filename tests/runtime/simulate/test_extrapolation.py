"""Extrapolation from few layers and micro-batches, used only if every figure grows linearly."""

import pytest
from strategist_runtime.simulate.extrapolation import StepSize, extrapolated
from strategist_runtime.simulate.timeline import MemorySnapshot
from strategist_runtime.simulate.traced_step import Traced

from strategist.contract.rank_observation import Moment

FIRST, LAST = Moment(phase="forward", module="head"), Moment(phase="backward", module="layers.0")


def step(size: StepSize, bend: int = 10**9) -> Traced:
    """A model whose layers keep 3 bytes per micro-batch and 5 permanently; micro-batches beyond ``bend`` keep no more."""
    layers, rows = size.middle + 4, size.micro_batches
    kept = {"activations": 3 * layers * min(rows, bend), "parameters": 5 * layers}
    return Traced(
        instants={
            FIRST: MemorySnapshot(parts=kept, modules={"layers": sum(kept.values())}),
            LAST: MemorySnapshot(parts={"gradients": 7 * layers}, modules={"layers": 7 * layers}),
        },
        calls={("dp_shard", "all_gather"): layers * rows},
        message_bytes={("dp_shard", "all_gather"): 10 * layers * rows},
        flops=6 * layers * rows,
        between_steps_bytes=5 * layers,
    )


@pytest.mark.parametrize(
    "whole", [StepSize(middle=90, micro_batches=64), StepSize(middle=1, micro_batches=64), StepSize(middle=90, micro_batches=3)]
)
def test_a_large_step_is_extrapolated_from_small_ones(whole: StepSize) -> None:
    traced = []
    found = extrapolated(whole, StepSize(middle=0, micro_batches=2), 2, lambda size: traced.append(size) or step(size))
    assert found == step(whole)
    assert whole not in traced
    assert max(size.middle for size in traced) <= 2
    assert max(size.micro_batches for size in traced) <= 6


def test_a_small_step_is_traced_directly() -> None:
    traced = []
    whole = StepSize(middle=2, micro_batches=6)
    assert extrapolated(whole, StepSize(middle=0, micro_batches=2), 2, lambda size: traced.append(size) or step(size)) == step(
        whole
    )
    assert traced == [whole]


def test_a_nonlinear_step_is_traced_completely() -> None:
    traced = []
    whole = StepSize(middle=1, micro_batches=64)
    found = extrapolated(whole, StepSize(middle=0, micro_batches=2), 2, lambda size: traced.append(size) or step(size, bend=5))
    assert found == step(whole, bend=5)
    assert traced[-1] == whole
