"""Memory traffic of weights and gradients besides matmuls: autocast's casts, accumulated gradients."""

from dataclasses import replace
from typing import Any

import pytest

from cost.situations import DENSE, WORKLOAD
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.candidate_arrays import view
from strategist.cost.model_states import stages, state_bytes
from strategist.cost.weight_traffic import added_gradient_bytes, weight_bytes
from strategist.expr.columns import row_of, table

HEAD = DENSE.vocab_size * DENSE.hidden_size
LAYERS = DENSE.parameters - 2 * HEAD


def moved(layout: Layout, accumulation: int, stack: Stack = NATIVE, precision: str = "bf16", **knobs: Any) -> tuple[float, float]:
    """Bytes of one micro-batch, and bytes of gradient accumulation."""
    workload = replace(WORKLOAD, precision=precision)
    v = view(table([row_of(Candidate(layout=layout, knobs=Knobs(**knobs)), accumulation)]), workload)
    stage, per = stages(DENSE, v, stack.memory_traits)[0], state_bytes(DENSE, workload, stack)
    whole = weight_bytes(stage, HEAD, 0.0 * v.tp, per, workload, stack, v)
    return float(whole[0]), float(added_gradient_bytes(stage, per, stack, v)[0])


def test_autocast_casts_each_weight_and_its_gradient_once() -> None:
    """4 bytes read and 2 written, and back; weights stored or gathered in the compute dtype need no cast."""
    assert moved(Layout(), 1)[0] == pytest.approx(2 * 6 * (LAYERS + HEAD), rel=1e-3)
    assert moved(Layout(), 1, precision="bf16-true")[0] == moved(Layout(dp_shard=8), 1)[0] == 0


def test_gradient_accumulation_reads_and_writes_sums() -> None:
    """fp32 if unsharded; bf16 gradients into fp32 sums if FSDP2 reduces once per step, shards if it reduces every micro-batch."""
    sums = 1 - 1 / 4
    assert moved(Layout(), 4)[1] == pytest.approx(12 * sums * DENSE.parameters, rel=1e-3)
    assert moved(Layout(dp_shard=8), 4, no_sync=True)[1] == pytest.approx(10 * sums * DENSE.parameters, rel=1e-3)
    assert moved(Layout(dp_shard=8), 4)[1] == pytest.approx(12 * sums * DENSE.parameters / 8, rel=1e-3)
    assert moved(Layout(), 1)[1] == 0


def test_matmuls_that_accumulate_need_no_kernels() -> None:
    assert moved(Layout(), 4, replace(NATIVE, family="megatron", accumulation="matmuls"))[1] == 0


def test_kernels_add_gradients_of_every_micro_batch_to_wider_sums() -> None:
    """2 + 4 bytes read and 4 written; sums of the gradients' own type take the first gradient as it is."""
    nanotron = replace(NATIVE, family="megatron", memory_traits=replace(NATIVE.memory_traits, parameters="copies"))
    assert moved(Layout(), 1, nanotron)[1] == pytest.approx(10 * DENSE.parameters, rel=1e-3)
    half = replace(nanotron, gradient_bytes=2.0)
    assert moved(Layout(), 1, half)[1] == 0
    assert moved(Layout(), 4, half)[1] == pytest.approx(6 * 3 / 4 * DENSE.parameters, rel=1e-3)
