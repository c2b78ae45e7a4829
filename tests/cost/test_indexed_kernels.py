"""Indexed kernels: clamps and biases of Megatron's experts, which compute the address of each value."""

from dataclasses import replace

import pytest

from cost.situations import EXPERTS, WORKLOAD, cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.candidate_arrays import view
from strategist.cost.elementwise import elementwise_traffic
from strategist.cost.price import price
from strategist.expr.columns import row_of, table

STREAMS = replace(NATIVE, family="megatron", experts="streams")
BIASED, CLAMPED = replace(EXPERTS, ffn_bias=True), replace(EXPERTS, activation_limit=7.0)
CANDIDATE = Candidate(layout=Layout(), knobs=Knobs(micro_batch=4))
VALUES = 8 * 4 * 2048 * 16 * 2
"""Values of a step for each of a routed token's outputs: micro-batches, sequences, tokens, layers, experts of a token."""


def elementwise_seconds(model: ModelShape, rate: float | None, bandwidth: float = 1e16, stack: Stack = STREAMS) -> float:
    on = cluster(1, 1, memory_bytes_per_second=bandwidth, indexed_values_per_second=rate)
    return float(price(model, on, WORKLOAD, table([row_of(CANDIDATE, 8)]), stack=stack).time["memory_bound"][0])


@pytest.mark.parametrize(("model", "kernels", "width"), [(BIASED, 3, 1024), (CLAMPED, 7, 2048)], ids=["biases", "clamps"])
def test_with_fast_memory_the_computed_addresses_of_broadcast_and_strided_operands_take_the_time(
    model: ModelShape, kernels: int, width: int
) -> None:
    """A bias takes one kernel forward and two backward, the clamps of both halves two and five."""
    additional = elementwise_seconds(model, 1e11) - elementwise_seconds(model, None)
    assert additional == pytest.approx(kernels * VALUES * width / 1e11, rel=0.01)


@pytest.mark.parametrize("model", [BIASED, CLAMPED], ids=["biases", "clamps"])
def test_with_slow_memory_bytes_take_the_time(model: ModelShape) -> None:
    slow = 1e11
    assert elementwise_seconds(model, 1e11, slow) == elementwise_seconds(model, None, slow)


@pytest.mark.parametrize("stack", [NATIVE, replace(STREAMS, graphs="step")], ids=["grouped", "graph of the step"])
def test_stacks_without_these_kernels_have_no_computed_addresses(stack: Stack) -> None:
    model = replace(BIASED, activation_limit=7.0)
    assert elementwise_seconds(model, 1e9, stack=stack) == elementwise_seconds(model, None, stack=stack)


@pytest.mark.parametrize(("ep", "dispatch", "passes"), [(4, "choices", 4), (8, "choices", 0), (4, "ranks", 0), (1, "choices", 0)])
def test_ranks_with_several_experts_sort_what_they_receive_for_each_choice(ep: int, dispatch: str, passes: int) -> None:
    """Read and written before the experts, and after them, in both passes."""
    candidate = replace(CANDIDATE, layout=Layout(dp_shard=8, ep=ep))
    seen = view(table([row_of(candidate, 8)]), WORKLOAD)
    sorting, other = (elementwise_traffic(EXPERTS, WORKLOAD, replace(STREAMS, dispatch=kind), seen) for kind in (dispatch, "ranks"))
    routed_bytes = 2 * 4 * WORKLOAD.seq_len * 2 * 1024
    for each, without in zip(sorting, other, strict=True):
        assert each[0] - without[0] == pytest.approx(passes * routed_bytes)
