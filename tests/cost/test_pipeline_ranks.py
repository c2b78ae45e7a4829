"""Memory of each rank of a pipeline."""

from dataclasses import replace

import pytest

from cost.situations import DENSE, WORKLOAD, cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.report import RankMemory
from strategist.cost.calibration import NEUTRAL
from strategist.cost.pipeline_ranks import rank_memory
from strategist.cost.price import price
from strategist.cost.simulated_steps import simulated
from strategist.expr.columns import row_of, table

DEEP = replace(DENSE, layers=32)


def ranks(schedule: str, virtual: int = 1, pp: int = 8) -> tuple[RankMemory, ...]:
    knobs = Knobs(pp_schedule=schedule, pp_virtual_stages=virtual, no_sync=True)
    workload = replace(WORKLOAD, global_batch=16)
    candidate, on = Candidate(layout=Layout(pp=pp), knobs=knobs), cluster(gpus_per_node=pp)
    columns = table([row_of(candidate, candidate.accumulation(workload))])
    (found,) = simulated(DEEP, on, workload, columns)
    return rank_memory(DEEP, on, workload, columns, NEUTRAL, found)


def test_1f1b_activations_decrease_from_rank_to_rank() -> None:
    found = ranks("1f1b")
    activations = [item.memory.activations for item in found if 0 < item.ranks[0] < 7]
    assert len(activations) == 6
    assert activations == sorted(activations, reverse=True)
    assert activations[0] > activations[-1]
    assert {item.memory.logits for item in found if 0 < item.ranks[0] < 7} == {0.0}


@pytest.mark.parametrize(("schedule", "virtual"), [("gpipe", 1), ("dual_pipe_v", 2)])
def test_middle_ranks_with_equal_memory_are_grouped(schedule: str, virtual: int) -> None:
    assert [item.ranks for item in ranks(schedule, virtual)] == [(0,), (1, 2, 3, 4, 5, 6), (7,)]


def test_first_and_last_rank_equal_the_price_and_middle_ranks_have_fewer_parameters() -> None:
    workload = replace(WORKLOAD, global_batch=16)
    candidate = Candidate(layout=Layout(pp=8), knobs=Knobs(no_sync=True))
    columns = table([row_of(candidate, candidate.accumulation(workload))])
    priced = price(DEEP, cluster(), workload, columns)
    first, *between, last = ranks("1f1b")
    assert first.memory.parameters == priced.first_stage["parameters"][0]
    assert last.memory.logits == priced.last_stage["logits"][0]
    assert all(item.memory.parameters < min(first.memory.parameters, last.memory.parameters) for item in between)
