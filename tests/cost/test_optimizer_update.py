"""Time and memory of the optimizer step."""

from dataclasses import replace

import pytest

from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.contract.stack import NATIVE, NATIVE_FOREACH, Stack, native_stack
from strategist.contract.workload import Workload
from strategist.cost.muon import layer_matrices, newton_schulz_flops
from strategist.cost.price import price
from strategist.expr.columns import row_of, table

from . import situations
from .situations import DENSE, DEVICE, EXPERTS, WORKLOAD

BYTES_PER_SECOND = DEVICE.memory_bytes_per_second * DEVICE.memory_efficiency
EIGHT = Layout(dp_shard=8)
NORM = 1e-4
"""Share of the parameters in the last norm, which no stage counts."""


def priced(stack: Stack, workload: Workload = WORKLOAD, layout: Layout = EIGHT, **knobs: object) -> Estimate:
    candidate = Candidate(layout=layout, knobs=Knobs(**knobs))  # type: ignore[arg-type]
    columns = table([row_of(candidate, candidate.accumulation(workload))])
    return price(DENSE, situations.cluster(gpus_per_node=layout.world_size), workload, columns, stack=stack).estimate(0)


def test_a_fused_adamw_reads_states_once_and_clipping_reads_gradients_twice() -> None:
    """For the gradient norm; fused AdamW scales gradients as it reads them, other optimizers in a separate pass."""
    each = DENSE.parameters / 8 / BYTES_PER_SECOND
    assert priced(NATIVE).time.optimizer == pytest.approx((28 + 2 * 4) * each, rel=NORM)
    assert priced(NATIVE, replace(WORKLOAD, optimizer="sgd")).time.optimizer == pytest.approx((12 + 3 * 4) * each, rel=NORM)
    assert priced(NATIVE, optimizer_in_backward=True, micro_batch=1).time.optimizer == pytest.approx((28 + 4) * each, rel=NORM)


def test_a_foreach_update_moves_more_bytes_and_allocates_a_temporary_copy() -> None:
    fused, foreach = (priced(stack, recompute="full", micro_batch=1) for stack in (NATIVE, NATIVE_FOREACH))
    seconds = (52 + 4) * DENSE.parameters / 8 / BYTES_PER_SECOND  # and a separate pass scales gradients
    assert foreach.time.optimizer - fused.time.optimizer == pytest.approx(seconds, rel=NORM)
    alone = [priced(stack, replace(WORKLOAD, global_batch=1), Layout(), recompute="full") for stack in (NATIVE, NATIVE_FOREACH)]
    assert alone[1].memory.allocated - alone[0].memory.allocated > 2 * DENSE.parameters
    late = [
        priced(stack, replace(WORKLOAD, global_batch=1), Layout(), optimizer_in_backward=True) for stack in (NATIVE, NATIVE_FOREACH)
    ]
    assert late[0].memory == late[1].memory  # parameters are updated one by one


@pytest.mark.parametrize(
    ("optimizer", "kernel", "found"),
    [("adamw", "foreach", NATIVE_FOREACH), ("adamw", "fused", NATIVE), ("sgd", "foreach", NATIVE)],
)
def test_the_optimizer_kernel_option_selects_the_stack(optimizer: str, kernel: str, found: Stack) -> None:
    assert native_stack(Options(optimizer_kernel=kernel), optimizer) == found


@pytest.mark.parametrize(("reshards", "copies"), [(False, 16 * 6 * 8), (True, 0)])
def test_each_ranks_piece_of_each_updated_parameter_is_copied_by_a_kernel(reshards: bool, copies: int) -> None:
    """Not where parameters are sharded, too, or every rank updates all."""
    copying = replace(NATIVE, copies_pieces=True)
    for layout, found in ((EIGHT, copies), (Layout(dp_replicate=8), 0)):
        with_copies, plain = (
            priced(stack, layout=layout, reshard_after_forward=reshards).time.optimizer for stack in (copying, NATIVE)
        )
        assert with_copies - plain == pytest.approx(found * DEVICE.launch_seconds, rel=1e-6)


def test_muon_runs_newton_schulz_for_each_matrix_on_every_rank() -> None:
    muon = replace(WORKLOAD, optimizer="muon")
    one, eight = (priced(NATIVE, muon, layout).time.optimizer for layout in (Layout(), EIGHT))
    gathered = priced(NATIVE, muon).time.dp_communication - priced(NATIVE).time.dp_communication
    assert gathered > 7 / 8 * 2 * 16 * DENSE.dense_layer_parameters / situations.INTRA.bytes_per_second
    moved = (20 + 3 * 4) * DENSE.parameters / BYTES_PER_SECOND
    assert one - moved == pytest.approx(eight - moved / 8, rel=NORM)
    matrices = list(layer_matrices(DENSE))
    assert sum(count * rows * columns for count, rows, columns in matrices) == DENSE.dense_layer_parameters - 2 * 1024
    flops = 16 * sum(count * newton_schulz_flops(rows, columns) for count, rows, columns in matrices)
    assert one - moved > flops / DEVICE.peak_flops["bf16"]


def test_muon_uses_adamw_for_embedding_head_and_routed_experts() -> None:
    workload = replace(WORKLOAD, optimizer="muon")
    ends = DENSE.embedding_parameters + DENSE.head_parameters
    kept = situations.estimate(EIGHT, workload=workload).memory.optimizer
    assert kept == pytest.approx((4 * DENSE.parameters + 4 * ends) / 8, rel=NORM)
    router = EXPERTS.hidden_size * EXPERTS.moe.experts
    assert sum(count * rows * columns for count, rows, columns in layer_matrices(EXPERTS)) == EXPERTS.attention_parameters + router
